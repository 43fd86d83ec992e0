/* What happens around the protocol: to pods, to nodes, and to requests that are still on their way. */
#include "model.h"

static void become(
    const struct setup *setup, const struct state *state, struct moves *moves, enum event event, unsigned pod,
    enum phase phase)
{
    struct state *next = branch(moves, state, event, NO_ACTOR, pod, state->pods[pod].gpus);
    next->pods[pod].phase = phase;
    move_version(setup, next, pod);
}

static void pod_moves(const struct setup *setup, const struct state *state, unsigned pod, struct moves *moves)
{
    enum phase phase = state->pods[pod].phase;
    switch (phase) {
    case UNBORN:
        if (!exists(state, 0))
            become(setup, state, moves, CREATE, pod, PENDING);
        return;
    case PENDING:
        become(setup, state, moves, DELETE, pod, setup->finalizers ? LEAVING : GONE);
        if (setup->touches)
            become(setup, state, moves, TOUCH, pod, PENDING);
        if (setup->ends)
            become(setup, state, moves, END, pod, ENDED);
        return;
    case LEAVING:
    case ENDED:
    case STOPPED:
        become(setup, state, moves, DELETE, pod, GONE);
        return;
    case RUNNING:
        become(setup, state, moves, STOP, pod, STOPPED);
        if (setup->graceful)
            become(setup, state, moves, DELETE, pod, STOPPING);
        if (setup->doubts)
            become(setup, state, moves, DOUBT, pod, DOUBTED);
        if (setup->force)
            become(setup, state, moves, FORCE_DELETE, pod, GHOST);
        return;
    case STOPPING:
    case DOUBTED:
        become(setup, state, moves, STOP, pod, STOPPED);
        if (setup->force)
            become(setup, state, moves, FORCE_DELETE, pod, GHOST);
        return;
    case GHOST:
        become(setup, state, moves, STOP, pod, DEAD);
        return;
    case DEAD:
        become(setup, state, moves, REPORT, pod, REPORTED);
        return;
    case GONE:
    case REPORTED:
        return;
    }
}

static void late_moves(const struct setup *setup, const struct state *state, struct moves *moves)
{
    for (unsigned pod = 0; pod < setup->pods; pod++) {
        for (unsigned gpus = 1; gpus <= 3; gpus++)
            if (state->bindings >> (3 * pod + gpus - 1) & 1) {
                struct state *next = branch(moves, state, LATE_BINDING, NO_ACTOR, pod, gpus);
                if (!commit_binding(setup, next, pod, gpus, false, true))
                    moves->count--;
            }
        if (state->former_bindings >> pod & 1) {
            struct state *next = branch(moves, state, LATE_BINDING, NO_ACTOR, pod, gpus_of(setup, 0));
            if (!commit_binding(setup, next, pod, gpus_of(setup, 0), true, true))
                moves->count--;
        }
        if (state->fences >> pod & 1)
            commit_fence(setup, branch(moves, state, LATE_FENCE, NO_ACTOR, pod, 0), pod, true);
    }
    for (unsigned node = 0; node < setup->nodes && state->ledgers; node++)
        for (unsigned all = only_of(setup, node, CLAIMS - 1), owners = 0; owners <= all; owners++)
            if (!(owners & ~all) && state->ledgers & ledger_bit(setup, node, owners))
                write_ledger(setup, branch(moves, state, LATE_SWAP, NO_ACTOR, 0, node), node, owners);
}

/* The first node is deleted and registers again from another machine: no ledger, another UID, and Bindings do not ask for that. */
static void renew_node(const struct setup *setup, const struct state *state, struct moves *moves)
{
    struct state *next = branch(moves, state, RENEW_NODE, NO_ACTOR, 0, 0);
    lose_ledger(setup, next, 0);
    for (unsigned i = 0; i < setup->binders; i++)
        if (next->actors[i].step == BIND && next->actors[i].node == 0)
            next->actors[i].former = true;
    for (unsigned pod = 0; pod < setup->pods; pod++) {
        unsigned named = next->bindings >> 3 * pod & 7, here = setup->nodes == 2 ? 1 : 7;
        if (named & here)
            next->former_bindings |= 1u << pod;
        next->bindings &= ~(here << 3 * pod);
        if (next->pods[pod].gpus & gpus_of(setup, 0))
            next->pods[pod].former = true;
    }
}

static void world_moves(const struct setup *setup, const struct state *state, struct moves *moves)
{
    for (unsigned pod = 0; pod < setup->pods; pod++)
        pod_moves(setup, state, pod, moves);
    late_moves(setup, state, moves);
    if (setup->renewals)
        renew_node(setup, state, moves);
    if (setup->wipes)
        lose_ledger(setup, branch(moves, state, WIPE, NO_ACTOR, 0, 0), 0);
}

void all_moves(const struct setup *setup, const struct state *state, struct moves *moves)
{
    moves->count = 0;
    world_moves(setup, state, moves);
    for (unsigned i = 0; i < setup->binders; i++)
        binder_moves(setup, state, i, moves);
    for (unsigned i = setup->binders; i < setup->binders + setup->reconcilers; i++)
        reconciler_moves(setup, state, i, moves);
}
