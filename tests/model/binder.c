/* What a binder does: `extender.binding.bind`, one reply at a time.
 *
 * A decision that rests on a ledger which is no longer the present one leads to a refused swap and, on the way there, to nothing
 * that a stranger's write to the pod would not do as well. So decisions are made on the present ledger here, and it may change
 * as soon as they are made.
 */
#include "model.h"

static struct actor looking(struct actor actor)
{
    return (struct actor){.step = LOOK, .pod = actor.pod, .node = actor.node, .doubt = actor.doubt};
}

static struct actor checking(struct actor actor, bool unanswered)
{
    actor.step = CHECK;
    actor.former = false;
    actor.unanswered = unanswered;
    actor.doubt |= unanswered;
    return actor;
}

static struct actor binding(struct actor actor)
{
    actor.step = BIND;
    actor.owners = 0;
    return actor;
}

/* Drop the claim of a binder, if the ledger is still the one that it wrote; dead claims of others may go with it. */
static void withdraw(
    const struct setup *setup, const struct state *state, enum event event, unsigned i, struct moves *moves)
{
    struct actor actor = state->actors[i];
    unsigned own = claimed_by(setup, state->owners, actor.node, actor.pod);
    unsigned dead = believed(setup, state, actor.node, actor.pod, FREE);
    if (!actor.ledger_holds) {
        branch(moves, state, event, i, actor.pod, 0)->actors[i] = IDLE_ACTOR;
        return;
    }
    for (unsigned dropped = 0; dropped <= dead; dropped++) {
        unsigned owners = swapped(setup, state->owners, actor.pod, 0, own, dropped), list[LEDGERS];
        for (unsigned n = dropped & ~dead ? 0 : written(setup, state, actor.node, owners, list); n-- > 0;)
            branch(moves, state, event, i, actor.pod, own)->actors[i] = (struct actor){
                .step = WITHDRAW, .pod = actor.pod, .node = actor.node, .ledger_holds = true, .owners = list[n]};
    }
}

/* Whether a GPU has room for the pod beside those whom the ledger names there. */
static bool has_room(const struct setup *setup, unsigned owners, unsigned gpu, unsigned pod)
{
    switch (conflict(setup, owners | claims_of(pod, 1u << gpu), gpu)) {
    case NONE:
        return true;
    case MIXED:
        return setup->mutant == SHARED_TAKEN_WHOLE && !setup->shares[pod];
    case MET:
        return setup->mutant == CLASS_IGNORED;
    case OVERFULL:
        return setup->mutant == SUM_IGNORED;
    default:
        return false;
    }
}

static bool serves(const struct setup *setup, unsigned owners, struct actor actor, unsigned chosen, unsigned own)
{
    if (__builtin_popcount(chosen) != setup->wanted[actor.pod] || chosen & ~gpus_of(setup, actor.node))
        return false;
    for (unsigned gpu = 0; gpu < GPUS; gpu++)
        if ((chosen & ~own) >> gpu & 1 && !has_room(setup, owners, gpu, actor.pod))
            return false;
    unsigned after = swapped(setup, owners, actor.pod, chosen, own, 0);
    if (shared_gpus(setup, actor.node, after) > setup->shareable && setup->mutant != BOUND_IGNORED)
        return false;
    return !own || chosen == own || setup->unfit;
}

/* Whether a binder may not have heard of the claims that others have just made on the other node. */
static bool may_overlook(const struct setup *setup)
{
    return setup->binders > 1 || setup->mutant == OLDER_KEPT;
}

/* List the ledgers by which a binder can drop the pod's claims on the other node; one that is empty where it has none. */
static unsigned drops(
    const struct setup *setup, const struct state *state, struct actor actor, unsigned list[LEDGERS])
{
    unsigned other = !actor.node, count = 0, found[LEDGERS];
    unsigned older = setup->nodes == 2 ? claimed_by(setup, state->owners, other, actor.pod) : 0;
    unsigned dead = older ? believed(setup, state, other, actor.pod, FREE) : 0;
    for (unsigned dropped = 0; older && dropped <= dead; dropped++) {
        unsigned owners = swapped(setup, state->owners, actor.pod, 0, older, dropped);
        for (unsigned n = dropped & ~dead ? 0 : written(setup, state, other, owners, found); n-- > 0;) {
            bool is_listed = false;
            for (unsigned i = 0; i < count; i++)
                is_listed |= list[i] == found[n];
            if (!is_listed)
                list[count++] = found[n];
        }
    }
    return count;
}

/* The same binder, that drops older claims before it claims. */
static struct actor dropping(const struct setup *setup, struct actor actor, unsigned owners)
{
    actor.older = actor.other_holds = true;
    actor.owners |= owners;
    actor.step = setup->mutant == OLDER_DROPPED_WITHOUT_FENCE ? DROP : FENCE;
    return actor;
}

/* Choose GPUs for a pod that was seen unbound, and send the first write that this takes. */
static void choose(
    const struct setup *setup, const struct state *state, enum event event, unsigned i, struct actor actor,
    struct moves *moves)
{
    unsigned all = gpus_of(setup, actor.node), own = claimed_by(setup, state->owners, actor.node, actor.pod);
    unsigned dead = believed(setup, state, actor.node, actor.pod, FREE);
    bool unfenced = setup->mutant == RECHOICE_WITHOUT_FENCE, closed = state->missing >> actor.node & 1;
    unsigned older[LEDGERS], with_older = drops(setup, state, actor, older);
    for (unsigned chosen = 1; chosen <= all && !closed; chosen++)
        for (unsigned dropped = 0; dropped <= dead; dropped++) {
            if (dropped & ~dead || !serves(setup, state->owners & ~dropped, actor, chosen, own))
                continue;
            unsigned owners = swapped(setup, state->owners, actor.pod, chosen, own, dropped), list[LEDGERS];
            for (unsigned n = written(setup, state, actor.node, owners, list); n-- > 0;) {
                struct actor next = actor;
                next.step = own && own != chosen && !unfenced ? FENCE : SWAP;
                next.gpus = chosen & 3;
                next.doubt |= own != 0;
                next.ledger_holds = true;
                next.owners = list[n] & 63;
                if (setup->mutant == NO_LEDGER)
                    next = binding(next);
                for (unsigned m = 0; m < with_older; m++)
                    branch(moves, state, event, i, actor.pod, chosen)->actors[i] = dropping(setup, next, older[m]);
                if (!with_older || may_overlook(setup))
                    branch(moves, state, event, i, actor.pod, chosen)->actors[i] = next;
            }
        }
}

static void begin(const struct setup *setup, const struct state *state, unsigned i, struct moves *moves)
{
    for (unsigned pod = 0; pod < setup->pods; pod++)
        for (unsigned node = 0; node < setup->nodes && state->pods[pod].phase != UNBORN; node++) {
            struct actor actor = {.step = LOOK, .pod = pod & 3, .node = node & 1};
            branch(moves, state, BEGIN, i, pod, 0)->actors[i] = actor;
            if (may_overlook(setup) ? claimed_by(setup, state->owners, node, pod) : gpus_with(state->owners, pod))
                continue; /* the cache will not do for a pod with claims */
            choose(setup, state, BEGIN, i, actor, moves);
            actor.version_holds = true;
            if (state->pods[pod].phase == PENDING)
                choose(setup, state, BEGIN, i, actor, moves);
        }
}

/* Read the pod live, and go on from what it is. */
static void look(const struct setup *setup, const struct state *state, unsigned i, struct moves *moves)
{
    struct actor actor = state->actors[i], next = IDLE_ACTOR;
    struct pod pod = state->pods[actor.pod];
    bool elsewhere = pod.gpus && !(pod.gpus & gpus_of(setup, actor.node));
    bool vanished = !exists(state, actor.pod) && (!actor.doubt || setup->mutant == WITHDRAWAL_IN_DOUBT);
    if (actor.step == CHECK && (pod.phase == ENDED || elsewhere || vanished)) {
        withdraw(setup, state, ANSWER, i, moves);
        return;
    }
    if (pod.phase == PENDING) {
        if (actor.step == LOOK || !actor.version_holds)
            next = (struct actor){.step = SEEN, .pod = actor.pod, .node = actor.node, .doubt = actor.doubt};
        else if (!actor.unanswered)
            next = (struct actor){
                .step = FENCE_REFUSED, .pod = actor.pod, .node = actor.node, .ledger_holds = actor.ledger_holds};
        if (actor.step == CHECK && !actor.version_holds && setup->mutant == RESEND_WITHOUT_CLAIM) {
            next = actor;
            next.step = BIND;
        }
        next.version_holds = next.step != IDLE;
    }
    branch(moves, state, ANSWER, i, actor.pod, 0)->actors[i] = next;
}

/* Go on after the server has answered the request of `before`. */
static struct actor answered(struct actor before, struct actor after, bool done)
{
    switch (before.step) {
    case FENCE:
        after.step = after.older ? DROP : SWAP;
        return done ? after : looking(before);
    case DROP:
        after.step = SWAP;
        after.older = false;
        return done ? after : looking(before);
    case SWAP:
        return done ? binding(after) : looking(before);
    case BIND:
        return done ? IDLE_ACTOR : checking(after, false);
    }
    return IDLE_ACTOR;
}

static struct actor unanswered(struct actor actor)
{
    switch (actor.step) {
    case SWAP:
        return looking(actor);
    case BIND:
        return checking(actor, true);
    }
    return IDLE_ACTOR;
}

/* A write under way: it is answered, or refused, or lost on the way there or back, or arrives late. */
static void binder_request(const struct setup *setup, const struct state *state, unsigned i, struct moves *moves)
{
    struct actor actor = state->actors[i], without_answer = unanswered(actor);
    struct state committed = *state;
    bool done = commit(setup, &committed, i);
    if (actor.step == FENCE_REFUSED && done)
        withdraw(setup, &committed, ANSWER, i, moves);
    else
        branch(moves, &committed, done ? ANSWER : CONFLICT, i, actor.pod, actor.gpus)->actors[i] =
            answered(actor, committed.actors[i], done);
    if (actor.step == BIND && setup->refusals)
        branch(moves, state, REFUSAL, i, actor.pod, actor.gpus)->actors[i] = checking(actor, false);
    if (done)
        branch(moves, &committed, ANSWER_LOST, i, actor.pod, actor.gpus)->actors[i] = unanswered(committed.actors[i]);
    if (done && (setup->delays || setup->late_bindings)) {
        struct state *next = branch(moves, &committed, DUPLICATED, i, actor.pod, actor.gpus);
        hold_up(setup, next, spent(actor));
        next->actors[i] = unanswered(committed.actors[i]);
    }
    if (without_answer.step != IDLE)
        branch(moves, state, LOST, i, actor.pod, actor.gpus)->actors[i] = without_answer;
    if (setup->delays || setup->late_bindings) {
        struct state *next = branch(moves, state, HELD_UP, i, actor.pod, actor.gpus);
        hold_up(setup, next, actor);
        next->actors[i] = without_answer;
    }
}

void binder_moves(const struct setup *setup, const struct state *state, unsigned i, struct moves *moves)
{
    switch (state->actors[i].step) {
    case IDLE:
        begin(setup, state, i, moves);
        return;
    case LOOK:
    case CHECK:
        look(setup, state, i, moves);
        break;
    case SEEN:
        choose(setup, state, ANSWER, i, state->actors[i], moves);
        break;
    default:
        binder_request(setup, state, i, moves);
    }
    give_up(setup, state, i, moves);
}
