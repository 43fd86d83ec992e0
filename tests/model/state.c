/* What the API server keeps: versions, ledgers and Bindings, and when a write commits. */
#include "model.h"

const unsigned NO_ACTOR = ACTORS;

static unsigned name_of(const struct setup *setup, unsigned pod)
{
    return setup->namesakes && pod == 1 ? 0 : pod;
}

struct state first_state(const struct setup *setup)
{
    struct state state = {0};
    for (unsigned pod = 0; pod < setup->pods; pod++)
        state.pods[pod].phase = name_of(setup, pod) == pod ? PENDING : UNBORN;
    return state;
}

unsigned gpus_of(const struct setup *setup, unsigned node)
{
    return setup->nodes == 2 ? 1u << node : (1u << setup->gpus) - 1;
}

unsigned owner_of(unsigned owners, unsigned gpu)
{
    return owners >> 2 * gpu & 3;
}

unsigned with_owner(unsigned owners, unsigned gpus, unsigned owner)
{
    for (unsigned gpu = 0; gpu < GPUS; gpu++)
        if (gpus >> gpu & 1)
            owners = (owners & ~(3u << 2 * gpu)) | owner << 2 * gpu;
    return owners;
}

/* The GPUs of a node that the ledger gives to `owner`. */
unsigned claimed_by(const struct setup *setup, unsigned owners, unsigned node, unsigned owner)
{
    unsigned gpus = 0;
    for (unsigned gpu = 0; gpu < GPUS; gpu++)
        if (owner_of(owners, gpu) == owner)
            gpus |= 1u << gpu;
    return gpus & gpus_of(setup, node);
}

bool exists(const struct state *state, unsigned pod)
{
    switch (state->pods[pod].phase) {
    case UNBORN:
    case GONE:
    case GHOST:
    case DEAD:
    case REPORTED:
        return false;
    }
    return true;
}

bool containers_run(struct pod pod)
{
    return pod.phase == RUNNING || pod.phase == STOPPING || pod.phase == DOUBTED || pod.phase == GHOST;
}

enum violation violation(const struct setup *setup, const struct state *state)
{
    unsigned taken = 0;
    bool unclaimed = false;
    for (unsigned pod = 0; pod < setup->pods; pod++) {
        struct pod at = state->pods[pod];
        if (!containers_run(at) || at.former)
            continue;
        if (taken & at.gpus)
            return DOUBLE;
        taken |= at.gpus;
        unclaimed |= !state->missing && with_owner(state->owners, at.gpus, pod + 1) != state->owners;
    }
    return unclaimed && !setup->doubles_only ? UNCLAIMED : NONE;
}

/* Whether some process may take the pod's claim on a node for this, by what it has or has not heard so far. */
bool can_believe(const struct setup *setup, const struct state *state, unsigned pod, unsigned node, unsigned standing)
{
    unsigned gpus = state->pods[pod].gpus;
    enum place place = !gpus ? UNBOUND : gpus & gpus_of(setup, node) ? HERE : ELSEWHERE;
    return setup->standings[state->pods[pod].phase][place] & standing;
}

/* The bit in `state.ledgers` of a swap that makes the node's part of `owners` its ledger. */
unsigned ledger_bit(const struct setup *setup, unsigned node, unsigned owners)
{
    return 1u << (setup->nodes == 2 ? 4 * node + owner_of(owners, node) : owners);
}

/* The pod has changed: nothing that rests on an older version can commit any more. */
void move_version(const struct setup *setup, struct state *state, unsigned pod)
{
    for (unsigned i = 0; i < ACTORS; i++) {
        if (state->actors[i].step != IDLE && state->actors[i].pod == pod)
            state->actors[i].version_holds = false;
        if (state->actors[i].step == REBUILD)
            state->actors[i].owners &= ~(1u << pod) & 15;
    }
    state->fences &= ~(1u << pod);
    if (setup->mutant == UID_ONLY || setup->mutant == NO_PRECONDITIONS)
        return;
    state->bindings &= ~(7u << 3 * pod);
    state->former_bindings &= ~(1u << pod);
}

/* The node's ledger has changed: no swap that rests on an older one can commit any more. */
void write_ledger(const struct setup *setup, struct state *state, unsigned node, unsigned owners)
{
    state->missing &= ~(1u << node);
    for (unsigned gpu = 0; gpu < GPUS; gpu++)
        if (gpus_of(setup, node) >> gpu & 1)
            state->owners = with_owner(state->owners, 1u << gpu, owner_of(owners, gpu)) & 15;
    for (unsigned i = 0; i < ACTORS; i++)
        if (state->actors[i].node == node && state->actors[i].ledger_holds) {
            state->actors[i].ledger_holds = false;
            if (setup->mutant != NO_CAS)
                state->actors[i].owners = 0;
        }
    if (setup->mutant != NO_CAS)
        state->ledgers &= setup->nodes == 2 ? ~(0xfu << 4 * node) : 0;
}

/* The node is without a ledger from now on. */
void lose_ledger(const struct setup *setup, struct state *state, unsigned node)
{
    write_ledger(setup, state, node, 0);
    if (setup->mutant != MISSING_IS_EMPTY)
        state->missing |= 1u << node;
}

bool commit_fence(const struct setup *setup, struct state *state, unsigned pod, bool version_holds)
{
    if (!version_holds || !exists(state, pod))
        return false;
    move_version(setup, state, pod);
    return true;
}

/* Bind whom the Binding reaches: the pod of that name, if the preconditions that are sent hold for it. */
bool commit_binding(
    const struct setup *setup, struct state *state, unsigned pod, unsigned gpus, bool former, bool version_holds)
{
    bool versions_count = setup->mutant != UID_ONLY && setup->mutant != NO_PRECONDITIONS;
    if (setup->mutant == NO_PRECONDITIONS && !exists(state, pod))
        for (unsigned other = 0; other < setup->pods; other++)
            if (name_of(setup, other) == name_of(setup, pod) && exists(state, other))
                pod = other;
    if (state->pods[pod].phase != PENDING || (versions_count && !version_holds))
        return false;
    state->pods[pod] = (struct pod){.phase = RUNNING, .gpus = gpus, .former = former};
    move_version(setup, state, pod);
    return true;
}

/* Begin a move that leads from one state to another: a copy for the caller to change. */
struct state *branch(
    struct moves *moves, const struct state *from, enum event event, unsigned actor, unsigned pod, unsigned gpus)
{
    struct move *move = &moves->list[moves->count++];
    *move = (struct move){*from, (uint8_t)event, (uint8_t)actor, (uint8_t)pod, (uint8_t)gpus};
    return &move->after;
}
