/* Visit every state that can be reached, nearest first, and stop at the first one that must not be.
 *
 * Some actors are alike: of the states that differ only in who is who, one is visited, and all are counted.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MODEL
#define MODEL "model.h"
#endif
#include MODEL

enum { FIRST_SLOTS = 1 << 16, INDEX_BITS = 27, MAX_STATES = (1 << INDEX_BITS) - 1 };

struct outcome {
    uint64_t states;    /* that can be reached */
    uint64_t visited;
    uint32_t depth;     /* moves to the farthest state, or to the violation */
    uint32_t violation; /* of enum violation */
    uint32_t full;      /* there was no room for all states */
};

/* For those who declare these structures in another language. */
const uint32_t LAYOUT[] = {
    sizeof(struct state), sizeof(struct setup), sizeof(struct move), sizeof(struct moves), sizeof(struct outcome)};

struct search {
    const struct setup *setup;
    struct state *states; /* in the order in which they were found; the part not yet expanded is the queue */
    uint32_t *parents;
    uint64_t count, capacity;
    uint32_t *slots;      /* open addressing: 1 + index of a state, under some bits of its hash; zero for none */
    uint64_t mask;
    uint64_t *settled;    /* one bit per calm state: it is known to settle */
};

/* Memory that costs nothing before it is touched. */
static void *reserve(uint64_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static void release_memory(void *memory, uint64_t bytes)
{
    if (memory)
        munmap(memory, bytes);
}

static uint64_t hash_of(const struct state *state)
{
    uint64_t words[sizeof *state / sizeof(uint64_t)], hash = 0x9e3779b97f4a7c15u;
    memcpy(words, state, sizeof words);
    for (unsigned i = 0; i < sizeof words / sizeof *words; i++) {
        hash = (hash ^ words[i]) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 32;
    }
    return hash;
}

/* What goes into a slot, so that most other states can be told apart without a look at them. */
static uint32_t entry_of(uint64_t index, uint64_t hash)
{
    return (uint32_t)(hash >> (32 + INDEX_BITS)) << INDEX_BITS | (uint32_t)(index + 1);
}

static bool grow(struct search *search)
{
    uint64_t slots = 2 * (search->mask + 1);
    uint32_t *wider = reserve(slots * sizeof *wider);
    if (!wider)
        return false;
    for (uint64_t index = 0; index < search->count; index++) {
        uint64_t hash = hash_of(&search->states[index]), slot = hash & (slots - 1);
        while (wider[slot])
            slot = (slot + 1) & (slots - 1);
        wider[slot] = entry_of(index, hash);
    }
    release_memory(search->slots, (search->mask + 1) * sizeof *search->slots);
    search->slots = wider;
    search->mask = slots - 1;
    return true;
}

static bool has_room(struct search *search, unsigned more)
{
    uint64_t count = search->count + more;
    return count <= search->capacity && (3 * count <= 2 * search->mask || grow(search));
}

/* Add a state unless it is known; whether it is new. */
static bool add(struct search *search, const struct state *state, uint64_t hash, uint64_t parent)
{
    uint32_t entry = entry_of(search->count, hash);
    uint64_t slot = hash & search->mask;
    for (; search->slots[slot]; slot = (slot + 1) & search->mask)
        if ((search->slots[slot] ^ entry) <= MAX_STATES &&
            !memcmp(&search->states[(search->slots[slot] & MAX_STATES) - 1], state, sizeof *state))
            return false;
    search->slots[slot] = entry;
    search->states[search->count] = *state;
    search->parents[search->count++] = (uint32_t)parent;
    return true;
}

static bool is_stuck(struct search *search, const struct state *state)
{
    struct state quiet = calm(search->setup, state);
    uint32_t number = calm_number(&quiet);
    uint64_t *word = &search->settled[number / 64], bit = 1ull << number % 64;
    if (!(*word & bit) && !settles(search->setup, &quiet))
        return true;
    *word |= bit;
    return false;
}

static enum violation judge(struct search *search, const struct state *state)
{
    enum violation found = violation(search->setup, state);
    if (found == NONE && !search->setup->doubles_only && is_stuck(search, state))
        return STUCK;
    return found;
}

static uint32_t trace_back(const struct search *search, uint64_t last, struct state *trace, uint32_t room)
{
    uint32_t length = 0;
    for (uint64_t index = last; index; index = search->parents[index])
        length++;
    uint64_t index = last;
    for (uint32_t step = length + 1; step-- > 0; index = search->parents[index])
        if (step < room)
            trace[step] = search->states[index];
    return length;
}

static void run(struct search *search, struct outcome *outcome, struct state *trace, uint32_t room)
{
    static _Thread_local struct moves moves;
    static _Thread_local uint64_t hashes[MOVES];
    struct state first = first_state(search->setup);
    uint64_t layer_end = 1;
    add(search, &first, hash_of(&first), 0);
    outcome->states = likenesses(search->setup, &first);
    for (uint64_t index = 0; index < search->count; index++) {
        if (index == layer_end) {
            outcome->depth++;
            layer_end = search->count;
        }
        all_moves(search->setup, &search->states[index], &moves);
        if (!has_room(search, moves.count)) {
            outcome->full = true;
            return;
        }
        for (unsigned i = 0; i < moves.count; i++) {
            make_canonical(search->setup, &moves.list[i].after);
            hashes[i] = hash_of(&moves.list[i].after);
            __builtin_prefetch(&search->slots[hashes[i] & search->mask]);
        }
        for (unsigned i = 0; i < moves.count; i++) {
            if (!add(search, &moves.list[i].after, hashes[i], index))
                continue;
            outcome->states += likenesses(search->setup, &moves.list[i].after);
            outcome->violation = judge(search, &moves.list[i].after);
            if (outcome->violation) {
                outcome->depth = trace_back(search, search->count - 1, trace, room);
                return;
            }
        }
    }
}

/* Explore from the first state, keeping at most `capacity` states; the way to a violation goes to `trace`. */
void explore(const struct setup *setup, uint64_t capacity, struct outcome *outcome, struct state *trace, uint32_t room)
{
    struct search search = {.setup = setup, .capacity = capacity, .mask = FIRST_SLOTS - 1};
    *outcome = (struct outcome){.full = true};
    if (capacity > MAX_STATES)
        return;
    search.states = reserve(capacity * sizeof *search.states);
    search.parents = reserve(capacity * sizeof *search.parents);
    search.slots = reserve(FIRST_SLOTS * sizeof *search.slots);
    search.settled = reserve(CALM_STATES / 8);
    if (search.states && search.parents && search.slots && search.settled) {
        outcome->full = false;
        run(&search, outcome, trace, room);
    }
    outcome->visited = search.count;
    release_memory(search.states, capacity * sizeof *search.states);
    release_memory(search.parents, capacity * sizeof *search.parents);
    release_memory(search.slots, (search.mask + 1) * sizeof *search.slots);
    release_memory(search.settled, CALM_STATES / 8);
}
