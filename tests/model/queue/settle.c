/* Whether every claim that stands can still be used or taken back, if faults end here. */
#include <string.h>

#include "queue.h"

enum { LONGEST = 24 };

/* Put the planners in order: they are alike. */
void make_canonical(const struct setup *setup, struct state *state)
{
    struct planner *pair = state->planners;
    if (setup->planners == 2 && memcmp(&pair[0], &pair[1], sizeof *pair) > 0) {
        struct planner first = pair[0];
        pair[0] = pair[1];
        pair[1] = first;
    }
}

/* How many states differ from a canonical one only in who is who. */
unsigned likenesses(const struct setup *setup, const struct state *state)
{
    return setup->planners == 2 && memcmp(&state->planners[0], &state->planners[1], sizeof(struct planner)) ? 2 : 1;
}

/* What is left of a state when every process has died and every request is lost. */
struct state calm(const struct setup *setup, const struct state *state)
{
    struct state after = first_state(setup);
    for (unsigned pod = 0; pod < PODS; pod++)
        after.pods[pod] = state->pods[pod];
    for (unsigned place = 0; place < PLACES; place++) {
        after.ledgers[place].owner = state->ledgers[place].owner;
        after.ledgers[place].current = state->ledgers[place].current;
    }
    return after;
}

/* A calm state as a number below `CALM_STATES`. */
uint32_t calm_number(const struct state *state)
{
    uint32_t number = 0;
    for (unsigned pod = 0; pod < PODS; pod++) /* a record has no part in this */
        number = number << 4 | state->pods[pod].phase << 2 | state->pods[pod].place;
    for (unsigned place = 0; place < PLACES; place++)
        number = number << 4 | state->ledgers[place].owner << 1 | state->ledgers[place].current;
    return number;
}

/* How many claims have neither a pod that runs nor one that can come. */
static unsigned unsettled(const struct setup *setup, const struct state *state)
{
    unsigned count = 0;
    for (unsigned place = 0; place < setup->places; place++) {
        unsigned owner = state->ledgers[place].owner;
        struct pod pod = state->pods[owner ? owner - 1 : 0];
        count += owner && (pod.phase == GATED || pod.phase == DONE || pod.place != place);
    }
    return count;
}

/* Let the first planner and the reconciler go on without faults, and plan nothing new. */
static bool settles_within(const struct setup *setup, const struct state *state, unsigned steps)
{
    struct moves moves = {.count = 0};
    const struct reconciler *reconciler = &state->reconciler;
    if (!unsettled(setup, state))
        return true;
    if (!steps)
        return false;
    if (reconciler->step == IDLE)
        planner_moves(setup, state, 0, &moves);
    if (state->planners[0].step == IDLE)
        reconciler_moves(setup, state, &moves);
    for (unsigned i = 0; i < moves.count; i++) {
        unsigned event = moves.list[i].event;
        if ((event == CARRY_ON || event == SEND || event == ANSWER) && settles_within(setup, &moves.list[i].after, steps - 1))
            return true;
    }
    return false;
}

bool settles(const struct setup *setup, const struct state *state)
{
    return settles_within(setup, state, LONGEST);
}
