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
        unsigned orphaned = claimed_by(setup, actor.owners, actor.node, pod);
        if (!orphaned || !can_believe(setup, state, pod, actor.node, PENDING_CLAIM))
            continue;
        struct actor next = actor;
        if (setup->mutant == NO_FENCE)
            next.owners = actor.owners & ~claims_of(pod, orphaned);
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
    return owners & ~claims_of(actor.pod, gpus_of(setup, actor.node));
}

static void fence_orphan(const struct setup *setup, const struct state *state, unsigned i, struct moves *moves)
{
    struct actor actor = state->actors[i];
    struct state committed = *state;
    if (commit(setup, &committed, i)) {
        struct actor after = committed.actors[i];
        after.owners = without(setup, after.owners, actor);
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

/* Fence whoever is left on the list, one after the other; then look who is bound. */
static void rebuild(
    const struct setup *setup, const struct state *state, enum event event, unsigned i, struct actor actor,
    struct moves *moves)
{
    unsigned pod = 0;
    while (pod < setup->pods && !(actor.owners >> pod & 1))
        pod++;
    bool is_left = pod < setup->pods;
    actor.step = is_left ? REBUILD : STOCK;
    actor.pod = is_left ? pod & 3 : 0;
    actor.version_holds = is_left;
    branch(moves, state, event, i, actor.pod, 0)->actors[i] = actor.ledger_holds ? actor : IDLE_ACTOR;
}

/* List the pods that may be bound yet, and begin to fence them. */
static void list_unbound(const struct setup *setup, const struct state *state, unsigned i, struct moves *moves)
{
    unsigned unbound = 0;
    for (unsigned pod = 0; pod < setup->pods && setup->mutant != REBUILD_WITHOUT_FENCE; pod++)
        if (exists(state, pod) && !state->pods[pod].gpus)
            unbound |= 1u << pod;
    for (unsigned heard = setup->mutant == UNBOUND_BY_HEARSAY ? 0 : unbound; heard <= unbound; heard++) {
        struct actor actor = state->actors[i];
        if (heard & ~unbound)
            continue;
        actor.owners = heard;
        rebuild(setup, state, ANSWER, i, actor, moves);
    }
}

/* List the pods that are bound, and write the ledger. */
static void take_stock(const struct setup *setup, const struct state *state, unsigned i, struct moves *moves)
{
    struct actor actor = {.step = SWAP, .node = state->actors[i].node, .ledger_holds = true};
    unsigned bound = 0;
    for (unsigned pod = 0; pod < setup->pods; pod++)
        if (containers_run(state->pods[pod]) && !state->pods[pod].former)
            bound |= 1u << pod;
    for (unsigned heard = setup->mutant == STOCK_BY_HEARSAY ? 0 : bound; heard <= bound; heard++) {
        if (heard & ~bound)
            continue;
        actor.owners = 0;
        for (unsigned pod = 0; pod < setup->pods; pod++)
            if (heard >> pod & 1)
                actor.owners |= claims_of(pod, state->pods[pod].gpus & gpus_of(setup, actor.node));
        branch(moves, state, ANSWER, i, 0, 0)->actors[i] = state->actors[i].ledger_holds ? actor : IDLE_ACTOR;
    }
}

/* A pod that has changed since it was listed need not be fenced. */
static void rebuild_on(const struct setup *setup, const struct state *state, unsigned i, struct moves *moves)
{
    struct state committed = *state;
    bool done = commit(setup, &committed, i);
    rebuild(setup, &committed, done ? ANSWER : CONFLICT, i, committed.actors[i], moves);
}

/* Begin with a node; whatever is believed of its claims by then. */
static void begin(const struct setup *setup, const struct state *state, unsigned i, unsigned node, struct moves *moves)
{
    unsigned dead = believed(setup, state, node, PODS, FREE);
    if (state->missing >> node & 1) {
        branch(moves, state, BEGIN, i, 0, 0)->actors[i] =
            (struct actor){.step = LIST_UNBOUND, .node = node & 1, .ledger_holds = true};
        return;
    }
    for (unsigned dropped = 0; dropped <= dead; dropped++) {
        unsigned owners = state->owners & ~dropped, list[LEDGERS];
        for (unsigned n = dropped & ~dead ? 0 : written(setup, state, node, owners, list); n-- > 0;)
            release(
                setup, state, BEGIN, i, (struct actor){.node = node & 1, .ledger_holds = true, .owners = list[n]},
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
    case LIST_UNBOUND:
        list_unbound(setup, state, i, moves);
        break;
    case REBUILD:
        rebuild_on(setup, state, i, moves);
        break;
    case STOCK:
        take_stock(setup, state, i, moves);
        break;
    case FENCE:
        fence_orphan(setup, state, i, moves);
        break;
    case SEEN: /* of a mutant only */
        actor.ledger_holds = true;
        actor.owners = only_of(setup, actor.node, without(setup, state->owners, actor));
        release(setup, state, ANSWER, i, actor, moves);
        break;
    case SWAP:
        if (commit(setup, &committed, i))
            branch(moves, &committed, ANSWER, i, 0, 0)->actors[i] = IDLE_ACTOR;
    }
    give_up(setup, state, i, moves);
}
