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

/* The pods with a claim on the GPU, as a mask. */
unsigned owners_of(unsigned owners, unsigned gpu)
{
    return owners >> PODS * gpu & ((1u << PODS) - 1);
}

/* A ledger with the claims of one pod on these GPUs. */
unsigned claims_of(unsigned pod, unsigned gpus)
{
    return (gpus & 1) << pod | (gpus >> 1 & 1) << (PODS + pod);
}

/* The GPUs that a ledger gives to the pod, whole or in part. */
unsigned gpus_with(unsigned owners, unsigned pod)
{
    return (owners >> pod & 1) | (owners >> (PODS + pod) & 1) << 1;
}

/* Those of them on a node. */
unsigned claimed_by(const struct setup *setup, unsigned owners, unsigned node, unsigned pod)
{
    return gpus_with(owners, pod) & gpus_of(setup, node);
}

/* The node's part of a ledger. */
unsigned only_of(const struct setup *setup, unsigned node, unsigned owners)
{
    unsigned all = 0;
    for (unsigned pod = 0; pod < setup->pods; pod++)
        all |= claims_of(pod, gpus_of(setup, node));
    return owners & all;
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

/* What is wrong where all of these have the GPU. */
enum violation conflict(const struct setup *setup, unsigned owners, unsigned gpu)
{
    unsigned whole = 0, shared = 0, units = 0, classes = 0, pods = owners_of(owners, gpu);
    if (!(pods & (pods - 1)))
        return NONE;
    for (unsigned pod = 0; pod < setup->pods; pod++) {
        if (!(pods >> pod & 1))
            continue;
        whole += !setup->shares[pod];
        shared += setup->shares[pod] != 0;
        units += setup->shares[pod];
        classes |= setup->shares[pod] ? 1u << setup->classes[pod] : 0;
    }
    if (whole > 1)
        return DOUBLE;
    if (whole && shared)
        return MIXED;
    if (classes & (classes - 1))
        return MET;
    return units > setup->units ? OVERFULL : NONE;
}

/* How many GPUs of a node are shared. */
unsigned shared_gpus(const struct setup *setup, unsigned node, unsigned owners)
{
    unsigned gpus = 0;
    for (unsigned pod = 0; pod < setup->pods; pod++)
        if (setup->shares[pod])
            gpus |= claimed_by(setup, owners, node, pod);
    return (unsigned)__builtin_popcount(gpus);
}

/* Whether each bind knows all claims of its pod: two at once do not, nor one whose predecessor's claim arrives late. */
static bool knows_all_claims(const struct setup *setup)
{
    bool is_sought = !setup->doubles_only || setup->mutant == OLDER_KEPT;
    return is_sought && (setup->nodes == 1 || (setup->binders == 1 && !setup->delays));
}

enum violation violation(const struct setup *setup, const struct state *state)
{
    unsigned running = 0;
    for (unsigned pod = 0; pod < setup->pods; pod++)
        if (containers_run(state->pods[pod]) && !state->pods[pod].former)
            running |= claims_of(pod, state->pods[pod].gpus);
    for (unsigned gpu = 0; gpu < GPUS; gpu++) {
        enum violation found = conflict(setup, running, gpu);
        if (found)
            return found;
    }
    for (unsigned node = 0; node < setup->nodes; node++)
        if (shared_gpus(setup, node, running) > setup->shareable)
            return SPREAD;
    for (unsigned pod = 0; pod < setup->pods && knows_all_claims(setup); pod++) {
        bool waits = !state->pods[pod].gpus; /* of one that is bound, all claims elsewhere are dead */
        if (waits && __builtin_popcount(gpus_with(state->owners, pod)) > setup->wanted[pod])
            return EXCESS;
    }
    return !state->missing && running & ~state->owners && !setup->doubles_only ? UNCLAIMED : NONE;
}

/* Whether some process may take the pod's claim on a node for this, by what it has or has not heard so far. */
bool can_believe(const struct setup *setup, const struct state *state, unsigned pod, unsigned node, unsigned standing)
{
    unsigned gpus = state->pods[pod].gpus;
    enum place place = !gpus ? UNBOUND : gpus & gpus_of(setup, node) ? HERE : ELSEWHERE;
    return setup->standings[state->pods[pod].phase][place] & standing;
}

/* The bit in `state.ledgers` of a swap that makes the node's part of `owners` its ledger; three pods on two GPUs have no room. */
unsigned ledger_bit(const struct setup *setup, unsigned node, unsigned owners)
{
    if (setup->nodes == 2)
        return 1u << (LEDGERS * node + owners_of(owners, node));
    return 1u << (setup->gpus == 1 ? owners : owners_of(owners, 0) | owners_of(owners, 1) << 2);
}

/* The pod has changed: nothing that rests on an older version can commit any more. */
void move_version(const struct setup *setup, struct state *state, unsigned pod)
{
    for (unsigned i = 0; i < ACTORS; i++) {
        if (state->actors[i].step != IDLE && state->actors[i].pod == pod)
            state->actors[i].version_holds = false;
        if (state->actors[i].step == REBUILD)
            state->actors[i].owners &= ~(1u << pod);
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
    state->owners = (state->owners & ~only_of(setup, node, CLAIMS - 1)) | only_of(setup, node, owners);
    for (unsigned i = 0; i < ACTORS; i++) {
        struct actor *actor = &state->actors[i];
        unsigned there = only_of(setup, node, CLAIMS - 1);
        if (actor->node == node && actor->ledger_holds) {
            actor->ledger_holds = false;
            if (setup->mutant != NO_CAS)
                actor->owners = actor->other_holds ? actor->owners & ~there : 0;
        } else if (actor->node != node && actor->other_holds) {
            actor->other_holds = false;
            if (setup->mutant != NO_CAS)
                actor->owners &= ~there;
        }
    }
    if (setup->mutant != NO_CAS)
        state->ledgers &= setup->nodes == 2 ? ~(0xffu << LEDGERS * node) : 0;
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
