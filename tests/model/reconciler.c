/* What a reconciler does: `extender.binding.release`, one reply at a time; it decides on the present ledger, as a binder does. */
#include "model.h"

/* Fence one more orphan, or write what has been decided so far. */
static void release(
    const struct setup *setup, const struct state *state, enum event event, unsigned i, struct actor actor,
    struct moves *moves)
{
    actor.version_holds = false;
    actor.pod = 0;
    actor.step = SWAP;
    if (!actor.ledger_holds && setup->mutant != NO_CAS) {
        branch(moves, state, event, i, 0, 0)->actors[i] = IDLE_ACTOR;
        return;
    }
    if (actor.owners != only_of(setup, actor.node, state->owners))
        branch(moves, state, event, i, 0, 0)->actors[i] = actor;
    else if (event != BEGIN)
        branch(moves, state, event, i, 0, 0)->actors[i] = IDLE_ACTOR;
    for (unsigned pod = 0; pod < setup->pods; pod++) {
        unsigned orphaned = claimed_by(setup, actor.owners, actor.node, pod + 1);
        if (!orphaned || !can_believe(setup, state, pod, actor.node, PENDING_CLAIM))
            continue;
        struct actor next = actor;
        if (setup->mutant == NO_FENCE)
            next.owners = with_owner(actor.owners, orphaned, 0) & 15;
        else
            next = (struct actor){
                .step = FENCE, .pod = pod & 3, .node = actor.node, .owners = actor.owners, .ledger_holds = true,
                .version_holds = true};
        if (setup->mutant == NO_FENCE || (exists(state, pod) && !state->pods[pod].gpus))
            branch(moves, state, event, i, pod, orphaned)->actors[i] = next;
    }
}

static unsigned without(const struct setup *setup, unsigned owners, struct actor actor)
{
    return with_owner(owners, claimed_by(setup, owners, actor.node, actor.pod + 1), 0);
}

static void fence_orphan(const struct setup *setup, const struct state *state, unsigned i, struct moves *moves)
{
    struct actor actor = state->actors[i];
    struct state committed = *state;
    if (commit(setup, &committed, i)) {
        struct actor after = committed.actors[i];
        after.owners = without(setup, after.owners, actor) & 15;
        if (setup->mutant == LEDGER_READ_AFTER_FENCE) {
            struct actor reading = {.step = SEEN, .pod = actor.pod, .node = actor.node};
            branch(moves, &committed, ANSWER, i, actor.pod, 0)->actors[i] = reading;
        } else {
            release(setup, &committed, ANSWER, i, after, moves);
        }
        branch(moves, &committed, ANSWER_LOST, i, actor.pod, 0)->actors[i] = IDLE_ACTOR;
    }
    release(setup, state, CONFLICT, i, actor, moves);
}

/* Write a ledger where there is none: fence one pod after the other that may be bound there yet, then look who is. */
static void rebuild(
    const struct setup *setup, const struct state *state, enum event event, unsigned i, unsigned pod, unsigned node,
    struct moves *moves)
{
    struct actor next = {.node = node & 1, .ledger_holds = true};
    bool fences = setup->mutant != REBUILD_WITHOUT_FENCE;
    while (pod < setup->pods && !(fences && exists(state, pod) && !state->pods[pod].gpus))
        pod++;
    if (pod < setup->pods) {
        next.step = REBUILD;
        next.pod = pod & 3;
        next.version_holds = true;
        branch(moves, state, event, i, pod, 0)->actors[i] = next;
        return;
    }
    next.step = SWAP;
    for (unsigned bound = 0; bound < setup->pods; bound++)
        if (containers_run(state->pods[bound]) && !state->pods[bound].former)
            next.owners = with_owner(next.owners, state->pods[bound].gpus & gpus_of(setup, node), bound + 1) & 15;
    branch(moves, state, event, i, 0, 0)->actors[i] = next;
}

static void rebuild_on(const struct setup *setup, const struct state *state, unsigned i, struct moves *moves)
{
    struct actor actor = state->actors[i];
    struct state committed = *state;
    if (!commit(setup, &committed, i) || !actor.ledger_holds)
        branch(moves, state, CONFLICT, i, actor.pod, 0)->actors[i] = IDLE_ACTOR;
    else
        rebuild(setup, &committed, ANSWER, i, actor.pod + 1, actor.node, moves);
}

/* Begin with a node; whatever is believed of its claims by then. */
static void begin(const struct setup *setup, const struct state *state, unsigned i, unsigned node, struct moves *moves)
{
    unsigned dead = believed(setup, state, node, PODS, FREE);
    if (state->missing >> node & 1) {
        rebuild(setup, state, BEGIN, i, 0, node, moves);
        return;
    }
    for (unsigned dropped = 0; dropped <= dead; dropped++) {
        unsigned owners = with_owner(state->owners, dropped, 0), list[LEDGERS];
        for (unsigned n = dropped & ~dead ? 0 : written(setup, state, node, owners, list); n-- > 0;)
            release(
                setup, state, BEGIN, i, (struct actor){.node = node & 1, .ledger_holds = true, .owners = list[n] & 15},
                moves);
    }
}

void reconciler_moves(const struct setup *setup, const struct state *state, unsigned i, struct moves *moves)
{
    struct actor actor = state->actors[i];
    struct state committed = *state;
    switch (actor.step) {
    case IDLE:
        for (unsigned node = 0; node < setup->nodes; node++)
            begin(setup, state, i, node, moves);
        return;
    case REBUILD:
        rebuild_on(setup, state, i, moves);
        break;
    case FENCE:
        fence_orphan(setup, state, i, moves);
        break;
    case SEEN: /* of a mutant only */
        actor.ledger_holds = true;
        actor.owners = only_of(setup, actor.node, without(setup, state->owners, actor)) & 15;
        release(setup, state, ANSWER, i, actor, moves);
        break;
    case SWAP:
        if (commit(setup, &committed, i))
            branch(moves, &committed, ANSWER, i, 0, 0)->actors[i] = IDLE_ACTOR;
    }
    give_up(setup, state, i, moves);
}
