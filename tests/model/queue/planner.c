/* What a planner does: `extender.features.queue.started` and `extender.binding.planned_claims`, one reply at a time. */
#include "queue.h"

/* Where a planner is that takes claims back: `planner.taking`. */
enum { FIRST_ROUND = 1, SECOND_ROUND, SWAPS };

static unsigned planned(const struct setup *setup, struct planner planner)
{
    unsigned pods = 0;
    for (unsigned pod = 0; pod < setup->pods; pod++)
        if (planner.plan[pod] != NOWHERE)
            pods |= 1u << pod;
    return pods;
}

/* End the plans of these pods. */
static void end_plans(struct planner *planner, unsigned pods)
{
    for (unsigned pod = 0; pod < PODS; pod++)
        if (pods >> pod & 1)
            planner->plan[pod] = NOWHERE;
    planner->claimed &= ~pods;
    planner->opened &= ~pods;
    planner->versions &= ~pods;
}

/* Wait for nothing any more. */
static void rest(const struct setup *setup, struct planner *planner)
{
    planner->step = IDLE;
    planner->pod = planner->place = planner->members = planner->ledgers = planner->taking = 0;
    planner->versions &= planned(setup, *planner);
}

static unsigned first_of(unsigned mask)
{
    return (unsigned)__builtin_ctz(mask);
}

/* Let the watch of pods show what has become of all that are planned: it shows each change after those before. */
static void hear_pods(const struct setup *setup, const struct state *state, unsigned i, struct moves *moves)
{
    struct planner planner = state->planners[i];
    unsigned pods = planned(setup, planner);
    planner.claimed &= planner.versions;
    planner.versions |= pods;
    for (unsigned pod = 0; pod < setup->pods; pod++) {
        unsigned bit = 1u << pod, unit = unit_of(setup, pod);
        struct ledger ledger = state->ledgers[planner.plan[pod]];
        if (!(planned(setup, planner) & bit))
            continue;
        switch (state->pods[pod].phase) {
        case GATED:
            if (ledger.owner == pod + 1 && ledger.current)
                planner.claimed |= bit;
            break;
        case OPEN:
            planner.opened |= bit;
            break;
        case BOUND:
            end_plans(&planner, bit);
            break;
        case DONE:
            end_plans(&planner, planner.opened & unit ? bit : unit);
        }
    }
    if (__builtin_memcmp(&planner, &state->planners[i], sizeof planner))
        branch(moves, state, HEAR, i, 0, 0)->planners[i] = planner;
}

/* Let the watch of nodes show the ledger of a place where a pod is planned. */
static void hear_ledger(const struct state *state, unsigned i, unsigned pod, struct moves *moves)
{
    const struct planner *planner = &state->planners[i];
    unsigned bit = 1u << pod;
    bool is_claimed = state->ledgers[planner->plan[pod]].owner == pod + 1 && state->ledgers[planner->plan[pod]].current;
    if (planner->versions & bit && is_claimed != (planner->claimed >> pod & 1) && !(planner->opened & bit))
        branch(moves, state, HEAR, i, pod, planner->plan[pod])->planners[i].claimed ^= bit;
}

static bool is_free(const struct setup *setup, const struct state *state, struct planner planner, unsigned place)
{
    for (unsigned pod = 0; pod < setup->pods; pod++)
        if (planner.plan[pod] == place)
            return false;
    return !state->ledgers[place].owner || is_dead(setup, state, place);
}

static bool is_gang(unsigned unit)
{
    return unit & (unit - 1);
}

/* Plan these pods on places that are free; on the way there `planner` is what it becomes. Whether there was room. */
static bool plan_on(
    const struct setup *setup, const struct state *state, unsigned i, struct planner planner, unsigned pods,
    unsigned barred, struct moves *moves)
{
    bool has_room = false;
    if (!pods) {
        struct state *next = branch(moves, state, PLAN, i, 0, 0);
        next->planners[i] = planner;
        for (unsigned pod = 0; pod < setup->pods; pod++) /* what is carried on may be another planner's */
            if (planner.plan[pod] != state->planners[i].plan[pod] && !is_gang(unit_of(setup, pod)))
                next->robbed |= planner.kept >> planner.plan[pod] & 1;
        return true;
    }
    unsigned pod = first_of(pods);
    for (unsigned place = 0; place < setup->places; place++) {
        if (barred >> place & 1 || !is_free(setup, state, planner, place))
            continue;
        struct planner next = planner;
        next.plan[pod] = place & 3;
        next.versions |= 1u << pod;
        has_room |= plan_on(setup, state, i, next, pods & (pods - 1), barred, moves);
    }
    return has_room;
}

/* Carry on what these pods have claims for, on any of the places where they have some; on the way there `planner` is what it becomes. */
static void carry_on(
    const struct setup *setup, const struct state *state, unsigned i, struct planner planner, unsigned pods,
    struct moves *moves)
{
    if (!pods) {
        branch(moves, state, CARRY_ON, i, 0, 0)->planners[i] = planner;
        return;
    }
    unsigned pod = first_of(pods), places = places_of(setup, state, pod);
    for (unsigned place = 0; place < setup->places; place++) {
        if (!(places >> place & 1))
            continue;
        struct planner next = planner;
        next.plan[pod] = place & 3;
        next.versions |= 1u << pod;
        next.claimed |= state->ledgers[place].current ? 1u << pod : 0;
        carry_on(setup, state, i, next, pods & (pods - 1), moves);
    }
}

/* Plan a unit, or carry on what has been claimed for it. */
static void begin(const struct setup *setup, const struct state *state, unsigned i, unsigned unit, struct moves *moves)
{
    struct planner next = state->planners[i];
    unsigned gated = unit & in_phase(setup, state, GATED), claimed = 0;
    bool has_open_member = unit & (in_phase(setup, state, OPEN) | in_phase(setup, state, BOUND));
    bool is_torn = unit & in_phase(setup, state, DONE);
    if (planned(setup, next) & unit || !gated)
        return;
    for (unsigned pod = 0; pod < setup->pods; pod++)
        if (gated >> pod & 1 && places_of(setup, state, pod))
            claimed |= 1u << pod;
    next.kept = is_gang(unit) ? 0 : next.kept;
    if (claimed && (has_open_member || (claimed == gated && !is_torn)))
        carry_on(setup, state, i, next, claimed, moves);
    if ((claimed && setup->mutant != PLANNED_AGAIN) || is_torn)
        return;
    unsigned barred = is_gang(unit) || setup->mutant == RESERVATION_IGNORED ? 0 : next.kept;
    if (plan_on(setup, state, i, next, gated, barred, moves) || !setup->reservations || !is_gang(unit))
        return;
    for (unsigned place = 0; place < setup->places; place++)
        if (is_free(setup, state, next, place))
            next.kept |= 1u << place;
    if (next.kept != state->planners[i].kept)
        branch(moves, state, KEEP, i, first_of(unit), 0)->planners[i] = next;
}

/* Send the next write for a planned pod: its claims, or the opening of its gate. */
static void send(const struct setup *setup, const struct state *state, unsigned i, unsigned pod, struct moves *moves)
{
    struct planner planner = state->planners[i], next = planner;
    unsigned bit = 1u << pod, unit = unit_of(setup, pod), of_unit = planned(setup, planner) & unit;
    unsigned place = planner.plan[pod], elsewhere = places_of(setup, state, pod) & ~(1u << place);
    if (planner.opened & bit)
        return;
    bool may_open = !(of_unit & ~(planner.claimed | planner.opened));
    if (setup->mutant == OPEN_UNCLAIMED || (setup->mutant == OPEN_ONE_BY_ONE && planner.claimed & bit))
        may_open = true;
    next.pod = pod & 3;
    next.place = place & 3;
    if (may_open) {
        next.step = OPEN_GATE;
        branch(moves, state, SEND, i, pod, place)->planners[i] = next;
    }
    if (planner.claimed & bit)
        return;
    next.ledgers = 1u << place & 7;
    next.step = CLAIM;
    if (is_free(setup, state, IDLE_PLANNER, place) || state->ledgers[place].owner == pod + 1)
        branch(moves, state, SEND, i, pod, place)->planners[i] = next;
    else
        end_plans(&branch(moves, state, GIVE_UP, i, pod, place)->planners[i], planner.opened & unit ? bit : of_unit);
    bool is_replaced = !is_gang(unit) || setup->mutant == CLAIMS_REPLACED || setup->mutant == PLANNED_AGAIN;
    if (elsewhere && is_replaced) {
        next.step = FENCE;
        next.place = first_of(elsewhere) & 3;
        next.ledgers = 1u << next.place & 7;
        branch(moves, state, SEND, i, pod, next.place)->planners[i] = next;
    } else if (elsewhere && state->ledgers[place].owner != pod + 1) { /* as far as it knows of that */
        end_plans(&branch(moves, state, GIVE_UP, i, pod, place)->planners[i], planner.opened & unit ? bit : of_unit);
    }
}

/* Send the next write that takes claims back: all pods are fenced, all but the last one once more, and then the swaps. */
static void take_next(const struct setup *setup, const struct state *state, struct planner *planner, unsigned left)
{
    unsigned members = planner->members, last = 1u << (31 - __builtin_clz(members));
    if (!left && planner->taking == FIRST_ROUND && setup->mutant != FENCED_ONCE) {
        planner->taking = SECOND_ROUND;
        left = members & ~last;
        if (setup->mutant == LEDGER_READ_LATE)
            planner->ledgers = 7;
    } else if (planner->taking == SECOND_ROUND) {
        left &= ~last;
    }
    if (left) {
        planner->step = FENCE_UNIT;
        planner->pod = first_of(left) & 3;
        return;
    }
    planner->taking = SWAPS;
    for (unsigned pod = 0; pod < setup->pods; pod++) {
        unsigned places = members >> pod & 1 ? places_of(setup, state, pod) & planner->ledgers : 0;
        if (!places)
            continue;
        planner->pod = pod & 3;
        planner->place = first_of(places) & 3;
        planner->step = DROP;
        return;
    }
    rest(setup, planner);
}

/* Begin to take back what was claimed for a unit and is not planned here; never once a member of a gang is open. */
static void take_back(
    const struct setup *setup, const struct state *state, unsigned i, unsigned unit, struct moves *moves)
{
    struct planner planner = state->planners[i];
    unsigned gated = unit & in_phase(setup, state, GATED);
    bool has_open_member = unit & (in_phase(setup, state, OPEN) | in_phase(setup, state, BOUND));
    if (planned(setup, planner) & unit || !gated || has_open_member || setup->mutant == NEVER_TAKEN_BACK)
        return;
    for (unsigned pod = 0; pod < setup->pods; pod++)
        if (gated >> pod & 1)
            planner.ledgers |= places_of(setup, state, pod) & 7;
    if (!planner.ledgers)
        return;
    planner.pod = first_of(gated) & 3;
    planner.versions |= gated;
    planner.taking = setup->mutant == TAKE_BACK_UNFENCED ? SWAPS : FIRST_ROUND;
    planner.members = gated & 15;
    take_next(setup, state, &planner, setup->mutant == TAKE_BACK_UNFENCED ? 0 : gated);
    branch(moves, state, SEND, i, planner.pod, planner.place)->planners[i] = planner;
}

/* Let the server execute the planner's request; whether it commits. The planner learns nothing of that here. */
static bool commit(const struct setup *setup, struct state *state, unsigned i)
{
    struct planner planner = state->planners[i];
    bool version_holds = planner.versions >> planner.pod & 1, ledger_holds = planner.ledgers >> planner.place & 1;
    switch (planner.step) {
    case FENCE_UNIT:
    case FENCE:
        return commit_fence(state, planner.pod, version_holds);
    case DROP:
    case CLAIM:
        if (!ledger_holds)
            return false;
        write_ledger(state, planner.place, planner.step == CLAIM ? planner.pod + 1u : 0, version_holds);
        return true;
    case OPEN_GATE:
        return commit_opening(setup, state, planner.pod, planner.place, version_holds);
    }
    return false;
}

/* Go on after the server has done what it was asked for; `state` is the one after that. */
static void go_on(const struct setup *setup, struct state *state, unsigned i)
{
    struct planner *planner = &state->planners[i];
    unsigned bit = 1u << planner->pod;
    switch (planner->step) {
    case FENCE_UNIT:
        planner->versions |= bit;
        take_next(setup, state, planner, planner->members & ~(bit | (bit - 1)));
        return;
    case FENCE:
        planner->versions |= bit;
        planner->claimed &= ~bit;
        planner->step = DROP;
        return;
    case DROP:
        if (planner->taking) {
            take_next(setup, state, planner, 0);
            return;
        }
        break;
    case CLAIM:
        planner->claimed |= bit;
        break;
    case OPEN_GATE:
        planner->versions |= bit;
        planner->opened |= bit;
        planner->claimed &= ~bit;
    }
    rest(setup, planner);
}

/* Put the planner's request into the network, unless it is too late for it already. */
static void hold_up(struct state *state, struct planner planner)
{
    unsigned bit = 1u << planner.pod;
    bool version_holds = planner.versions & bit, ledger_holds = planner.ledgers >> planner.place & 1;
    struct ledger *ledger = &state->ledgers[planner.place];
    switch (planner.step) {
    case FENCE_UNIT:
    case FENCE:
        state->fences |= version_holds ? bit : 0;
        return;
    case DROP:
        ledger->late_drop |= ledger_holds;
        return;
    case CLAIM:
        ledger->late_claims |= ledger_holds && version_holds ? bit : 0;
        ledger->late_outdated |= ledger_holds && !version_holds ? bit : 0;
        return;
    case OPEN_GATE:
        state->openings |= version_holds ? 1u << (3 * planner.pod + planner.place) : 0;
    }
}

/* A write under way: it is answered, or refused, or lost on the way there or back, or arrives late. */
static void request(const struct setup *setup, const struct state *state, unsigned i, struct moves *moves)
{
    struct planner planner = state->planners[i];
    struct state committed = *state;
    bool is_done = commit(setup, &committed, i);
    struct state *next = branch(moves, &committed, is_done ? ANSWER : CONFLICT, i, planner.pod, planner.place);
    if (is_done)
        go_on(setup, next, i);
    else if (planner.step == DROP && planner.taking)
        take_next(setup, next, &next->planners[i], 0);
    else
        rest(setup, &next->planners[i]);
    if (is_done)
        rest(setup, &branch(moves, &committed, ANSWER_LOST, i, planner.pod, planner.place)->planners[i]);
    if (setup->delays) {
        next = branch(moves, state, HELD_UP, i, planner.pod, planner.place);
        hold_up(next, planner);
        rest(setup, &next->planners[i]);
    }
}

void planner_moves(const struct setup *setup, const struct state *state, unsigned i, struct moves *moves)
{
    struct planner planner = state->planners[i];
    if (planner.step == IDLE) {
        hear_pods(setup, state, i, moves);
        for (unsigned pod = 0; pod < setup->pods; pod++) {
            unsigned unit = unit_of(setup, pod);
            if (first_of(unit) == pod) {
                begin(setup, state, i, unit, moves);
                take_back(setup, state, i, unit, moves);
                if (planned(setup, planner) & unit && !(planner.opened & unit))
                    end_plans(&branch(moves, state, GIVE_UP, i, pod, 0)->planners[i], unit);
            }
            if (planner.plan[pod] != NOWHERE) {
                hear_ledger(state, i, pod, moves);
                send(setup, state, i, pod, moves);
            }
        }
    } else {
        request(setup, state, i, moves);
    }
    if (__builtin_memcmp(&planner, &IDLE_PLANNER, sizeof planner))
        branch(moves, state, KILLED, i, 0, 0)->planners[i] = IDLE_PLANNER;
}
