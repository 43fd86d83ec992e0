/* What the reconciler, kube-scheduler and strangers do, and what becomes of requests that are still on their way. */
#include "queue.h"

static void resting(struct state *state)
{
    state->reconciler = (struct reconciler){.step = IDLE};
}

/* Whether the claim on a place may be dropped after a fence: no plan will use it, and no bind there. */
static bool is_orphan(const struct setup *setup, const struct state *state, unsigned place)
{
    unsigned pod = state->ledgers[place].owner - 1u;
    if (pod >= setup->pods || state->pods[pod].phase != OPEN)
        return false;
    return !is_pinned(setup, pod) || state->pods[pod].place != place || setup->mutant == PINNED_RELEASED;
}

/* `extender.binding.release`, one reply at a time. */
void reconciler_moves(const struct setup *setup, const struct state *state, struct moves *moves)
{
    struct reconciler now = state->reconciler;
    struct state committed = *state, *next;
    bool is_done = false;
    switch (now.step) {
    case IDLE:
        for (unsigned place = 0; place < setup->places; place++) {
            bool dead = is_dead(setup, state, place);
            if (!dead && !is_orphan(setup, state, place))
                continue;
            unsigned pod = state->ledgers[place].owner - 1u;
            branch(moves, state, SEND, RECONCILER, pod, place)->reconciler = (struct reconciler){
                .step = dead || setup->mutant == RELEASED_UNFENCED ? DROP : FENCE, .pod = pod & 3, .place = place & 3,
                .version_holds = !dead, .ledger_holds = true};
        }
        return;
    case FENCE:
        is_done = commit_fence(&committed, now.pod, now.version_holds);
        next = branch(moves, &committed, is_done ? ANSWER : CONFLICT, RECONCILER, now.pod, now.place);
        if (is_done)
            next->reconciler.step = DROP;
        else
            resting(next);
        if (setup->delays && now.version_holds) {
            next = branch(moves, state, HELD_UP, RECONCILER, now.pod, now.place);
            next->fences |= 1u << now.pod;
            resting(next);
        }
        break;
    case DROP:
        if (now.ledger_holds) {
            write_ledger(&committed, now.place, 0, false);
            if (setup->delays) {
                next = branch(moves, state, HELD_UP, RECONCILER, now.pod, now.place);
                next->ledgers[now.place].late_drop = true;
                resting(next);
            }
        }
        resting(branch(moves, &committed, now.ledger_holds ? ANSWER : CONFLICT, RECONCILER, now.pod, now.place));
    }
    resting(branch(moves, &committed, KILLED, RECONCILER, now.pod, now.place));
}

static void end(const struct state *state, struct moves *moves, enum event event, unsigned pod)
{
    struct state *next = branch(moves, state, event, NO_ACTOR, pod, 0);
    next->pods[pod] = (struct pod){.phase = DONE, .place = NOWHERE};
    move_version(next, pod);
}

static void bind(const struct state *state, struct moves *moves, enum event event, unsigned pod, unsigned place)
{
    struct state *next = branch(moves, state, event, NO_ACTOR, pod, place);
    next->pods[pod] = (struct pod){.phase = BOUND, .place = place & 3, .record = state->pods[pod].record && place != NOWHERE};
    move_version(next, pod);
}

/* kube-scheduler looks at no version. The pod gets the GPU that its record names, or else its claim; or else another one. */
static void pod_moves(const struct setup *setup, const struct state *state, unsigned pod, struct moves *moves)
{
    struct pod now = state->pods[pod];
    bool gets_its_own = now.place != NOWHERE && (now.record || state->ledgers[now.place].owner == pod + 1);
    if (setup->touches && (now.phase == GATED || now.phase == OPEN))
        move_version(branch(moves, state, TOUCH, NO_ACTOR, pod, 0), pod);
    if (now.phase == OPEN) {
        bind(state, moves, BIND, pod, gets_its_own ? now.place : NOWHERE);
        if (!is_pinned(setup, pod))
            bind(state, moves, BIND_ELSEWHERE, pod, NOWHERE);
    }
    if (now.phase == BOUND)
        end(state, moves, END, pod);
    else if (now.phase != DONE && setup->deletions)
        end(state, moves, DELETE, pod);
}

static void late_moves(const struct setup *setup, const struct state *state, struct moves *moves)
{
    for (unsigned place = 0; place < setup->places; place++) {
        struct ledger ledger = state->ledgers[place];
        if (ledger.late_drop)
            write_ledger(branch(moves, state, LATE_DROP, NO_ACTOR, 0, place), place, 0, false);
        for (unsigned pod = 0; pod < setup->pods; pod++) {
            if (ledger.late_claims >> pod & 1)
                write_ledger(branch(moves, state, LATE_CLAIM, NO_ACTOR, pod, place), place, pod + 1, true);
            if (ledger.late_outdated >> pod & 1)
                write_ledger(branch(moves, state, LATE_CLAIM, NO_ACTOR, pod, place), place, pod + 1, false);
            if (state->openings >> (3 * pod + place) & 1)
                commit_opening(setup, branch(moves, state, LATE_OPENING, NO_ACTOR, pod, place), pod, place, true);
        }
    }
    for (unsigned pod = 0; pod < setup->pods; pod++)
        if (state->fences >> pod & 1)
            commit_fence(branch(moves, state, LATE_FENCE, NO_ACTOR, pod, 0), pod, true);
}

void all_moves(const struct setup *setup, const struct state *state, struct moves *moves)
{
    moves->count = 0;
    for (unsigned pod = 0; pod < setup->pods; pod++)
        pod_moves(setup, state, pod, moves);
    late_moves(setup, state, moves);
    for (unsigned i = 0; i < setup->planners; i++)
        planner_moves(setup, state, i, moves);
    reconciler_moves(setup, state, moves);
}
