/* Whether every claim that nobody needs can still be taken back, if faults end here. */
#include "model.h"

/* What becomes of a pod when nobody interferes any more, and its agent goes on reporting. */
static enum phase final_phase(enum phase phase)
{
    switch (phase) {
    case STOPPING:
    case DOUBTED:
        return STOPPED;
    case GHOST:
    case DEAD:
        return REPORTED;
    default:
        return phase;
    }
}

/* What is left of a state when every process has died, every request is lost, and what must come to an end has. */
struct state calm(const struct setup *setup, const struct state *state)
{
    struct state after = {.owners = state->owners, .missing = state->missing};
    for (unsigned pod = 0; pod < setup->pods; pod++) {
        after.pods[pod] = state->pods[pod];
        after.pods[pod].phase = final_phase(state->pods[pod].phase);
    }
    return after;
}

/* A calm state as a number below `CALM_STATES`. */
uint32_t calm_number(const struct state *state)
{
    uint32_t number = state->owners | state->missing << PODS * GPUS;
    for (unsigned pod = 0; pod < PODS; pod++)
        number = number << 7 | state->pods[pod].phase << 3 | state->pods[pod].gpus << 1 | state->pods[pod].former;
    return number;
}

/* How much there is to do: ledgers to be rebuilt, then claims of pods that do not run. */
static unsigned unsettled(const struct state *state)
{
    unsigned needed = 0;
    for (unsigned pod = 0; pod < PODS; pod++)
        if (containers_run(state->pods[pod]))
            needed |= claims_of(pod, state->pods[pod].gpus);
    return (PODS * GPUS + 1) * (unsigned)__builtin_popcount(state->missing) +
           (unsigned)__builtin_popcount(state->owners & ~needed);
}

/* Let the first reconciler go on, by itself and without faults, from `state` to the end of what it has begun. */
static bool settles_from(const struct setup *setup, const struct state *state, unsigned left)
{
    struct moves moves = {.count = 0};
    unsigned reconciler = setup->binders;
    reconciler_moves(setup, state, reconciler, &moves);
    for (unsigned i = 0; i < moves.count; i++) {
        const struct state *after = &moves.list[i].after;
        if (moves.list[i].event != BEGIN && moves.list[i].event != ANSWER)
            continue;
        if (after->actors[reconciler].step != IDLE ? settles_from(setup, after, left)
                                                   : unsettled(after) < left && settles(setup, after))
            return true;
    }
    return false;
}

/* Whether a reconciler can bring a calm state to where each claim is of a pod that runs on the GPU, and no ledger is missing. */
bool settles(const struct setup *setup, const struct state *state)
{
    unsigned left = unsettled(state);
    return !left || settles_from(setup, state, left);
}
