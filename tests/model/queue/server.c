/* What the API server keeps: pods, their versions and the ledgers, and when a write commits. */
#include "queue.h"

const unsigned NO_ACTOR = PLANNERS + 1;
const struct planner IDLE_PLANNER = {.plan = {NOWHERE, NOWHERE, NOWHERE, NOWHERE}};

struct state first_state(const struct setup *setup)
{
    struct state state = {0};
    for (unsigned i = 0; i < PLANNERS; i++)
        state.planners[i] = IDLE_PLANNER;
    for (unsigned pod = 0; pod < PODS; pod++)
        state.pods[pod] = (struct pod){.phase = pod < setup->pods ? GATED : DONE, .place = NOWHERE};
    return state;
}

/* The pods that start together with one, and itself, as a mask. */
unsigned unit_of(const struct setup *setup, unsigned pod)
{
    unsigned unit = 0;
    for (unsigned peer = 0; peer < setup->pods; peer++)
        if (setup->units[peer] == setup->units[pod])
            unit |= 1u << peer;
    return unit;
}

unsigned in_phase(const struct setup *setup, const struct state *state, enum phase phase)
{
    unsigned pods = 0;
    for (unsigned pod = 0; pod < setup->pods; pod++)
        if (state->pods[pod].phase == phase)
            pods |= 1u << pod;
    return pods;
}

/* Where a pod has claims, as a mask. */
unsigned places_of(const struct setup *setup, const struct state *state, unsigned pod)
{
    unsigned places = 0;
    for (unsigned place = 0; place < setup->places; place++)
        if (state->ledgers[place].owner == pod + 1)
            places |= 1u << place;
    return places;
}

/* Whether a pod may be bound nowhere but where it was planned. */
bool is_pinned(const struct setup *setup, unsigned pod)
{
    return setup->pinned >> pod & 1;
}

/* Whether a place is claimed by a pod that does not use it and will not. */
bool is_dead(const struct setup *setup, const struct state *state, unsigned place)
{
    unsigned owner = state->ledgers[place].owner;
    if (!owner || owner > setup->pods)
        return false;
    struct pod pod = state->pods[owner - 1];
    return pod.phase == DONE || (pod.phase == BOUND && pod.place != place);
}

/* The pod has changed: nothing that rests on an older version can commit any more. */
void move_version(struct state *state, unsigned pod)
{
    for (unsigned i = 0; i < PLANNERS; i++)
        state->planners[i].versions &= ~(1u << pod);
    if (state->reconciler.pod == pod)
        state->reconciler.version_holds = false;
    for (unsigned place = 0; place < PLACES; place++) {
        struct ledger *ledger = &state->ledgers[place];
        ledger->current &= ledger->owner != pod + 1;
        ledger->late_outdated |= ledger->late_claims & 1u << pod;
        ledger->late_claims &= ~(1u << pod);
    }
    state->openings &= ~(7u << 3 * pod);
    state->fences &= ~(1u << pod);
}

/* The ledger has changed: no swap that rests on an older one can commit any more. */
void write_ledger(struct state *state, unsigned place, unsigned owner, bool current)
{
    for (unsigned i = 0; i < PLANNERS; i++)
        state->planners[i].ledgers &= ~(1u << place);
    if (state->reconciler.place == place)
        state->reconciler.ledger_holds = false;
    state->ledgers[place] = (struct ledger){.owner = owner & 7, .current = current};
}

bool commit_fence(struct state *state, unsigned pod, bool version_holds)
{
    if (!version_holds || state->pods[pod].phase == DONE)
        return false;
    state->pods[pod].record = false;
    move_version(state, pod);
    return true;
}

bool commit_opening(const struct setup *setup, struct state *state, unsigned pod, unsigned place, bool version_holds)
{
    if (state->pods[pod].phase != GATED || !(version_holds || setup->mutant == OPEN_ANY_VERSION))
        return false;
    state->pods[pod] = (struct pod){.phase = OPEN, .place = place & 3, .record = true};
    move_version(state, pod);
    return true;
}

/* Whether a gang has started in parts: one of its pods has neither claims nor a place. One that has lost a pod cannot start whole. */
static bool is_half(const struct setup *setup, const struct state *state, unsigned unit)
{
    unsigned gated = unit & in_phase(setup, state, GATED), without = 0;
    for (unsigned pod = 0; pod < setup->pods; pod++)
        if (gated >> pod & 1 && !places_of(setup, state, pod))
            without |= 1u << pod;
    return without && unit != gated && !(unit & in_phase(setup, state, DONE));
}

enum violation violation(const struct setup *setup, const struct state *state)
{
    unsigned running = 0;
    for (unsigned pod = 0; pod < setup->pods; pod++) {
        struct pod now = state->pods[pod];
        bool is_claimed = now.place != NOWHERE && state->ledgers[now.place].owner == pod + 1;
        if (now.phase != BOUND || !(now.record || is_claimed))
            continue; /* or its node knows of no GPU that is meant for it */
        if (running >> now.place & 1)
            return DOUBLE;
        running |= 1u << now.place;
    }
    if (state->robbed)
        return ROBBED;
    for (unsigned pod = 0; pod < setup->pods && !setup->doubles_only; pod++) {
        struct pod now = state->pods[pod];
        bool is_claimed = now.place != NOWHERE && state->ledgers[now.place].owner == pod + 1;
        bool may_use = now.place != NOWHERE && (now.record || is_pinned(setup, pod));
        if (may_use && !is_claimed)
            return now.phase == OPEN ? LOST : UNCLAIMED;
        if (is_half(setup, state, unit_of(setup, pod)))
            return HALF;
    }
    return NONE;
}

/* Begin a move that leads from one state to another: a copy for the caller to change. */
struct state *branch(
    struct moves *moves, const struct state *from, enum event event, unsigned actor, unsigned pod, unsigned place)
{
    struct move *move = &moves->list[moves->count++];
    *move = (struct move){*from, (uint8_t)event, (uint8_t)actor, (uint8_t)pod, (uint8_t)place};
    return &move->after;
}
