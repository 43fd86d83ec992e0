/* The queue's part of the protocol as a finite model: from the gate to the bind by a kube-scheduler that knows no extender.
 *
 * A place is a GPU on a node of its own. As in model.h, a copy of a resourceVersion or of a ledger is one bit: does it still hold?
 * What a planner believes of its own plan is stored, and may be of the past; all that it decides besides rests on the present,
 * which may change as soon as that is decided.
 */
#ifndef QUEUE_H
#define QUEUE_H

#include <stdbool.h>
#include <stdint.h>

enum { PODS = 4, PLACES = 3, NOWHERE = PLACES, PLANNERS = 2, RECONCILER = PLANNERS, MOVES = 256, CALM_STATES = 1 << 28 };

enum phase {
    GATED,
    OPEN,  /* not bound; kube-scheduler may bind it at any moment, whatever its version is */
    BOUND, /* and its containers run */
    DONE,  /* deleted unbound, or its containers have stopped */
};

/* What a planner or the reconciler waits for. */
enum step {
    IDLE,
    FENCE_UNIT, /* FencePod, of one pod after the other, before the first of them loses its claims */
    FENCE,      /* FencePod, of a pod that is to lose the claim on one place */
    DROP,       /* SwapLedger, without that claim */
    CLAIM,      /* SwapLedger, with the claim of a planned pod */
    OPEN_GATE,  /* OpenGate */
};

enum mutant {
    FAITHFUL,
    OPEN_UNCLAIMED,      /* open a gate before the ledger has the claims */
    OPEN_ONE_BY_ONE,     /* open the gate of a gang's member once it has its own claims */
    OPEN_ANY_VERSION,    /* open a gate whatever the pod has become */
    TAKE_BACK_UNFENCED,  /* take a plan back without a fence */
    FENCED_ONCE,         /* take a gang's plan back after one fence of each pod */
    LEDGER_READ_LATE,    /* take it back from ledgers that are read after the first fences */
    NEVER_TAKEN_BACK,    /* let the claims stand that a planner which died has left */
    CLAIMS_REPLACED,     /* put the claims of a plan in the place of those that another planner has made */
    PLANNED_AGAIN,       /* plan a gang that has been begun once more */
    PINNED_RELEASED,     /* take the claims of a pinned pod for orphans */
    RELEASED_UNFENCED,   /* drop the claims of an orphan without a fence */
    RESERVATION_IGNORED, /* plan a pod on what is kept for a gang */
};

struct planner {
    uint32_t step : 3;
    uint32_t pod : 2;
    uint32_t place : 2;
    uint32_t members : 4;  /* pods whose claims are taken back */
    uint32_t ledgers : 3;  /* places whose ledger is still the one that was read */
    uint32_t versions : 4; /* pods that are still in the version that was read */
    uint32_t claimed : 4;  /* planned pods with claims for that version, as the planner believes */
    uint32_t opened : 4;   /* planned pods whose gates are open, as it knows */
    uint32_t kept : 3;     /* places that are kept for a gang */
    uint32_t taking : 2;   /* the request belongs to a plan that is taken back: how far that is */
    uint8_t plan[PODS];    /* the place of each pod; `NOWHERE`: it is not planned */
};

struct reconciler {
    uint8_t step : 3;
    uint8_t pod : 2;
    uint8_t place : 2;
    uint8_t version_holds : 1;
    uint8_t ledger_holds : 1;
};

struct pod {
    uint8_t phase : 2;
    uint8_t place : 2;  /* where it is sent or bound; `NOWHERE`: not on a place of the model */
    uint8_t record : 1; /* it was sent there with a record, and has not been fenced since */
};

/* The ledger of a place, and the swaps of it in the network that can still succeed. */
struct ledger {
    uint16_t owner : 3;         /* a pod and one, or zero */
    uint16_t current : 1;       /* the claim names the version in which the pod is */
    uint16_t late_claims : 4;   /* by pod, for the version in which it is */
    uint16_t late_outdated : 4; /* for a version in which it was */
    uint16_t late_drop : 1;
};

struct state {
    struct planner planners[PLANNERS];
    struct ledger ledgers[PLACES];
    struct pod pods[PODS];
    struct reconciler reconciler;
    uint16_t openings : 12; /* OpenGates in the network that can still succeed: three bits per pod, one for each place */
    uint16_t fences : 4;    /* fences in the network that can still succeed */
    uint8_t robbed;         /* a planner has planned a pod on what it keeps for a gang */
    uint8_t unused;
};

_Static_assert(sizeof(struct state) == 32, "states are compared and hashed as four words");

struct setup {
    uint8_t pods, places, planners;
    uint8_t units[PODS];   /* the unit of each pod: pods of one unit are a gang */
    uint8_t pinned;        /* pods that may only go where they are planned, as a mask; members of gangs do */
    uint8_t mutant;
    uint8_t touches;       /* strangers write to pods */
    uint8_t deletions;     /* pods are deleted before they are bound */
    uint8_t delays;        /* requests are held in the network and arrive late */
    uint8_t reservations;  /* GPUs are kept for a gang that has no room */
    uint8_t doubles_only;  /* for mutants: whether what is claimed can be taken back is not looked at */
};

enum event {
    TOUCH, DELETE, END, BIND, BIND_ELSEWHERE, LATE_CLAIM, LATE_DROP, LATE_OPENING, LATE_FENCE,
    HEAR, PLAN, CARRY_ON, KEEP, GIVE_UP, SEND, ANSWER, CONFLICT, ANSWER_LOST, HELD_UP, KILLED,
};

struct move {
    struct state after;
    uint8_t event, actor, pod, place;
};

struct moves {
    unsigned count;
    struct move list[MOVES];
};

enum violation { NONE, DOUBLE, UNCLAIMED, LOST, HALF, ROBBED, STUCK };

/* server.c: what the API server keeps, and what it lets happen */
extern const unsigned NO_ACTOR;
extern const struct planner IDLE_PLANNER;
struct state first_state(const struct setup *setup);
enum violation violation(const struct setup *setup, const struct state *state);
unsigned unit_of(const struct setup *setup, unsigned pod);
unsigned in_phase(const struct setup *setup, const struct state *state, enum phase phase);
unsigned places_of(const struct setup *setup, const struct state *state, unsigned pod);
bool is_pinned(const struct setup *setup, unsigned pod);
bool is_dead(const struct setup *setup, const struct state *state, unsigned place);
void move_version(struct state *state, unsigned pod);
void write_ledger(struct state *state, unsigned place, unsigned owner, bool current);
bool commit_fence(struct state *state, unsigned pod, bool version_holds);
bool commit_opening(const struct setup *setup, struct state *state, unsigned pod, unsigned place, bool version_holds);
struct state *branch(
    struct moves *moves, const struct state *from, enum event event, unsigned actor, unsigned pod, unsigned place);

/* planner.c, reconciler.c, and world.c */
void planner_moves(const struct setup *setup, const struct state *state, unsigned i, struct moves *moves);
void reconciler_moves(const struct setup *setup, const struct state *state, struct moves *moves);
void all_moves(const struct setup *setup, const struct state *state, struct moves *moves);

/* settle.c */
void make_canonical(const struct setup *setup, struct state *state);
unsigned likenesses(const struct setup *setup, const struct state *state);
struct state calm(const struct setup *setup, const struct state *state);
uint32_t calm_number(const struct state *state);
bool settles(const struct setup *setup, const struct state *state);

#endif
