/* What every actor does: judge claims, write ledgers, send requests, and die. */
#include "model.h"

const struct actor IDLE_ACTOR = {.step = IDLE};

/* The GPUs that a ledger can name for one more pod: what shares add up to is not looked at. */
static unsigned nameable(const struct setup *setup, unsigned owners, unsigned pod, unsigned gpus)
{
    for (unsigned gpu = 0; gpu < GPUS; gpu++) {
        enum violation found = conflict(setup, owners | claims_of(pod, 1u << gpu), gpu);
        if (found && found != OVERFULL)
            gpus &= ~(1u << gpu);
    }
    return gpus;
}

/* The ledger that a swap writes for a pod: `extender.binding.ledger.swap_ledger`. What begins takes the place of what it cannot
 * stand beside. */
unsigned swapped(
    const struct setup *setup, unsigned owners, unsigned pod, unsigned begun, unsigned ended, unsigned dropped)
{
    unsigned kept = owners & ~(claims_of(pod, ended) | dropped), after = claims_of(pod, begun);
    for (unsigned other = 0; other < PODS; other++)
        after |= claims_of(other, nameable(setup, after, other, gpus_with(kept, other)));
    return after;
}

/* The claims on a node by others than `but` that a process can take for `standing`. */
unsigned believed(
    const struct setup *setup, const struct state *state, unsigned node, unsigned but, unsigned standing)
{
    unsigned claims = 0;
    for (unsigned pod = 0; pod < setup->pods; pod++)
        if (pod != but && can_believe(setup, state, pod, node, standing))
            claims |= claims_of(pod, claimed_by(setup, state->owners, node, pod));
    return claims;
}

/* List every ledger that a process can write where `owners` are to stay: it adds what it takes for held by a pod that runs. */
unsigned written(
    const struct setup *setup, const struct state *state, unsigned node, unsigned owners, unsigned list[LEDGERS])
{
    unsigned count = 1;
    list[0] = only_of(setup, node, owners);
    for (unsigned pod = 0; pod < setup->pods; pod++) {
        unsigned gpus = state->pods[pod].gpus & gpus_of(setup, node);
        if (!gpus || state->pods[pod].former || !can_believe(setup, state, pod, node, HELD))
            continue;
        for (unsigned known = count, i = 0; i < known; i++) {
            unsigned added = list[i] | claims_of(pod, nameable(setup, list[i], pod, gpus));
            if (added != list[i])
                list[count++] = added;
        }
    }
    return count;
}

/* Put the actor's request into the network, unless it is too late for it already. */
void hold_up(const struct setup *setup, struct state *state, struct actor actor)
{
    bool any_version = setup->mutant == UID_ONLY || setup->mutant == NO_PRECONDITIONS;
    switch (actor.step) {
    case FENCE:
    case FENCE_REFUSED:
    case REBUILD:
        if (actor.version_holds)
            state->fences |= 1u << actor.pod;
        return;
    case SWAP:
    case WITHDRAW:
        if (setup->delays && (actor.ledger_holds || setup->mutant == NO_CAS))
            state->ledgers |= ledger_bit(setup, actor.node, actor.owners);
        return;
    case DROP:
        if (setup->delays && (actor.other_holds || setup->mutant == NO_CAS))
            state->ledgers |= ledger_bit(setup, !actor.node, actor.owners);
        return;
    case BIND:
        if (!actor.version_holds && !any_version)
            return;
        if (actor.former)
            state->former_bindings |= 1u << actor.pod;
        else
            state->bindings |= 1u << (3 * actor.pod + actor.gpus - 1);
    }
}

/* The same request once more, after it has committed: what it asked for does not hold any more. */
struct actor spent(struct actor actor)
{
    actor.version_holds = actor.ledger_holds = actor.other_holds = false;
    return actor;
}

/* Let the server execute the actor's request; whether it commits. What the reply says holds at that moment. */
bool commit(const struct setup *setup, struct state *state, unsigned i)
{
    struct actor actor = state->actors[i];
    switch (actor.step) {
    case FENCE:
    case FENCE_REFUSED:
    case REBUILD:
        state->actors[i].version_holds = commit_fence(setup, state, actor.pod, actor.version_holds);
        return state->actors[i].version_holds;
    case SWAP:
    case WITHDRAW:
        if (!actor.ledger_holds && setup->mutant != NO_CAS)
            return false;
        write_ledger(setup, state, actor.node, actor.owners);
        state->actors[i].ledger_holds = true;
        return true;
    case DROP:
        if (setup->mutant == OLDER_READ_AFTER_FENCE)
            actor.owners = state->owners & ~claims_of(actor.pod, gpus_of(setup, !actor.node));
        else if (!actor.other_holds && setup->mutant != NO_CAS)
            return false;
        write_ledger(setup, state, !actor.node, actor.owners);
        return true;
    case BIND:
        return commit_binding(setup, state, actor.pod, actor.gpus, actor.former, actor.version_holds);
    }
    return false;
}

/* Die or run out of time: nobody waits for the request any more, and it may still arrive. */
void give_up(const struct setup *setup, const struct state *state, unsigned i, struct moves *moves)
{
    struct actor actor = state->actors[i];
    branch(moves, state, KILLED, i, actor.pod, actor.gpus)->actors[i] = IDLE_ACTOR;
    if (setup->delays || setup->late_bindings) {
        struct state *next = branch(moves, state, KILLED_HELD_UP, i, actor.pod, actor.gpus);
        hold_up(setup, next, actor);
        next->actors[i] = IDLE_ACTOR;
    }
}
