/* Binders are alike, and so are reconcilers. */
#include <string.h>

#include "model.h"

static void put_in_order(struct actor pair[2])
{
    if (memcmp(&pair[0], &pair[1], sizeof *pair) > 0) {
        struct actor first = pair[0];
        pair[0] = pair[1];
        pair[1] = first;
    }
}

/* Put the actors of each kind in order; there are two at most. */
void make_canonical(const struct setup *setup, struct state *state)
{
    if (setup->binders == 2)
        put_in_order(state->actors);
    if (setup->reconcilers == 2)
        put_in_order(state->actors + setup->binders);
}

/* How many states differ from a canonical one only in who is who. */
unsigned likenesses(const struct setup *setup, const struct state *state)
{
    const struct actor *binders = state->actors, *reconcilers = binders + setup->binders;
    unsigned count = setup->binders == 2 && memcmp(&binders[0], &binders[1], sizeof *binders) ? 2 : 1;
    return setup->reconcilers == 2 && memcmp(&reconcilers[0], &reconcilers[1], sizeof *binders) ? 2 * count : count;
}
