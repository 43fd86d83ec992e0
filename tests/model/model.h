/* The protocol as a finite model: what one moment looks like, and which moments can follow.
 *
 * Nothing is counted that may grow without bound. A resourceVersion or a ledger text is only ever compared with the present
 * one, and neither ever comes back; so each copy of one is a single bit: does it still hold? Caches are not stored at all: whoever
 * looks at one may see any past (`setup.standings`). A request that waits in the network and can no longer succeed is forgotten.
 */
#ifndef MODEL_H
#define MODEL_H

#include <stdbool.h>
#include <stdint.h>

enum { PODS = 3, GPUS = 2, CLAIMS = 1 << PODS * GPUS, ACTORS = 4, PHASES = 12, LEDGERS = 1 << PODS, MOVES = 512, CALM_STATES = 1 << 29 };

/* What is true of a pod. Its containers run from the Binding on; nobody has to see that at once, or ever. */
enum phase {
    UNBORN,   /* not created: the pod that has its name still exists */
    PENDING,
    LEAVING,  /* unbound and being deleted; a finalizer keeps it */
    ENDED,    /* unbound, its phase final */
    RUNNING,
    STOPPING, /* bound and being deleted; its containers run */
    DOUBTED,  /* its phase final by another hand than the kubelet's; its containers run */
    STOPPED,  /* its containers have terminated, and its status says so */
    GONE,     /* deleted unbound, or after it had stopped */
    GHOST,    /* deleted by force; its containers run */
    DEAD,     /* deleted by force; its containers have stopped, and nobody has said so */
    REPORTED, /* deleted by force; the agent has reported since then that its GPUs are not held */
};

/* What a process can make of a claim, as `extender.standing` names it; a set of these is a mask. */
enum standing { HELD = 1, PENDING_CLAIM = 2, UNSEEN = 4, GONE_CLAIM = 8, FREE = 16 };

/* Where a pod is bound, as seen from the node of a claim. */
enum place { UNBOUND, HERE, ELSEWHERE, PLACES };

/* What an actor waits for. */
enum step {
    IDLE,
    LOOK,          /* GetPod, to begin with or after a lost swap */
    SEEN,          /* the reply of that: a pod that can be bound */
    FENCE,         /* FencePod, before the ledger may be swapped */
    SWAP,          /* SwapLedger */
    BIND,          /* BindPod */
    CHECK,         /* GetPod, after a Binding that did not succeed */
    FENCE_REFUSED, /* FencePod, after a Binding that was refused */
    WITHDRAW,      /* SwapLedger, to drop the claim made before */
    LIST_UNBOUND,     /* ListPods: who is unbound, where a ledger is to be written and there is none */
    REBUILD,       /* FencePod, of one after the other on that list */
    STOCK,         /* ListPods: who is bound there, once nobody is left on that list */
    DROP,          /* SwapLedger of the other node, to drop older claims, once the pod is fenced */
};

enum mutant {
    FAITHFUL,
    NO_LEDGER,                    /* bind without a claim */
    NO_CAS,                       /* write the ledger whatever it has become */
    NO_FENCE,                     /* drop an orphan's claim without fencing the pod */
    UID_ONLY,                     /* Bindings without resourceVersion */
    NO_PRECONDITIONS,             /* Bindings without UID and resourceVersion */
    RECHOICE_WITHOUT_FENCE,       /* change one's own claim without fencing the pod */
    RESEND_WITHOUT_CLAIM,         /* send the Binding again with the pod's new version alone */
    LEDGER_READ_AFTER_FENCE,      /* drop an orphan from the ledger as it is after the fence */
    WITHDRAWAL_IN_DOUBT,          /* drop the claim of a pod that vanished while its Binding was in doubt */
    MISSING_IS_EMPTY,             /* take a ledger that is not there for one without claims */
    REBUILD_WITHOUT_FENCE,        /* write a ledger anew from the pods that are bound, and fence nobody */
    UNBOUND_BY_HEARSAY,              /* fence the unbound pods that were heard of */
    STOCK_BY_HEARSAY,             /* write a ledger anew from the bound pods that were heard of */
    SUM_IGNORED,                  /* put a share beside others whatever is left of the GPU */
    SHARED_TAKEN_WHOLE,           /* give a GPU whole that others have shares of */
    CLASS_IGNORED,                /* put a share beside those of another class */
    BOUND_IGNORED,                /* share more GPUs of a node than may be shared */
    OLDER_KEPT,                   /* claim on a node whatever the pod has claimed on the other one */
    OLDER_DROPPED_WITHOUT_FENCE,  /* drop claims on the other node without fencing the pod */
    OLDER_READ_AFTER_FENCE,       /* drop them from the ledger as it is after the fence */
};

struct actor {
    unsigned step : 4;
    unsigned pod : 2;
    unsigned node : 1;
    unsigned gpus : 2;          /* mask: what the Binding names */
    unsigned former : 1;        /* those are GPUs of a machine that is no longer there */
    unsigned version_holds : 1; /* the pod is still in the version that the actor has read */
    unsigned ledger_holds : 1;  /* the node's ledger is still the one that the actor has read */
    unsigned owners : 6;        /* the ledgers to be written, as in `state`; the list: pods still in the version listed */
    unsigned doubt : 1;         /* a Binding of unknown outcome may have been sent for the claim */
    unsigned unanswered : 1;    /* the Binding to be checked got no answer */
    unsigned older : 1;         /* the pod's claims on the other node are to be dropped first */
    unsigned other_holds : 1;   /* that node's ledger is still the one that the actor has read */
};

struct pod {
    uint8_t phase : 4;
    uint8_t gpus : 2; /* mask: where it is bound; zero: nowhere */
    uint8_t former : 1;
};

struct state {
    struct actor actors[ACTORS];   /* binders first */
    struct pod pods[PODS];
    uint8_t owners : 6;            /* the ledger: three bits per GPU, one for each pod that has a claim on it */
    uint8_t missing : 2;           /* mask over nodes: there is no ledger */
    uint16_t ledgers;              /* swaps in the network that can still succeed: see `ledger_bit` */
    uint16_t bindings : 9;         /* Bindings in the network: three bits per pod, one for each mask of GPUs */
    uint16_t former_bindings : 3;  /* those that name GPUs of a machine that is no longer there: one bit per pod */
    uint16_t fences : 3;           /* fences in the network that can still succeed: one bit per pod */
};

_Static_assert(sizeof(struct state) == 24, "states are compared and hashed as three words");

struct setup {
    uint8_t pods, nodes, gpus, binders, reconcilers;
    uint8_t wanted[PODS];       /* GPUs that each pod asks for */
    uint8_t units;              /* the memory of a GPU */
    uint8_t shares[PODS];       /* how much of it a pod asks for on each of its GPUs; zero: whole GPUs */
    uint8_t classes[PODS];      /* of those that ask for shares: different ones never meet on a GPU */
    uint8_t shareable;          /* GPUs of a node that may be shared at one time */
    uint8_t mutant;
    uint8_t delays;             /* requests are held in the network and arrive late */
    uint8_t late_bindings;      /* Bindings and fences are, and no ledgers */
    uint8_t touches;            /* strangers write to pods */
    uint8_t finalizers;         /* pending pods linger while they are deleted */
    uint8_t ends;               /* pending pods end */
    uint8_t graceful;           /* running pods are deleted with grace */
    uint8_t doubts;             /* others than the kubelet end running pods */
    uint8_t force;              /* running pods are deleted by force */
    uint8_t refusals;           /* a policy refuses Bindings */
    uint8_t unfit;              /* claimed GPUs may no longer serve */
    uint8_t namesakes;          /* the second pod is created when the first one is gone, with its name */
    uint8_t renewals;           /* the first node is made anew under its name, on another machine */
    uint8_t wipes;              /* the first node loses its ledger, and all else stays: it is made anew on the same machine */
    uint8_t doubles_only;       /* for mutants: an unclaimed pod is on the way, not the end */
    uint8_t standings[PHASES][PLACES]; /* every standing that a process can come to believe in */
};

enum event {
    CREATE, TOUCH, DELETE, END, DOUBT, FORCE_DELETE, STOP, REPORT, RENEW_NODE, WIPE,
    LATE_SWAP, LATE_BINDING, LATE_FENCE,
    BEGIN, ANSWER, CONFLICT, REFUSAL, LOST, ANSWER_LOST, DUPLICATED, HELD_UP, KILLED, KILLED_HELD_UP,
};

struct move {
    struct state after;
    uint8_t event, actor, pod, gpus;
};

struct moves {
    unsigned count;
    struct move list[MOVES];
};

enum violation { NONE, DOUBLE, MIXED, MET, OVERFULL, SPREAD, UNCLAIMED, STUCK, EXCESS };

/* state.c: what the API server keeps, and what it lets happen */
extern const unsigned NO_ACTOR;
struct state first_state(const struct setup *setup);
enum violation violation(const struct setup *setup, const struct state *state);
unsigned gpus_of(const struct setup *setup, unsigned node);
unsigned owners_of(unsigned owners, unsigned gpu);
unsigned claims_of(unsigned pod, unsigned gpus);
unsigned gpus_with(unsigned owners, unsigned pod);
unsigned only_of(const struct setup *setup, unsigned node, unsigned owners);
unsigned claimed_by(const struct setup *setup, unsigned owners, unsigned node, unsigned pod);
enum violation conflict(const struct setup *setup, unsigned owners, unsigned gpu);
unsigned shared_gpus(const struct setup *setup, unsigned node, unsigned owners);
bool can_believe(const struct setup *setup, const struct state *state, unsigned pod, unsigned node, unsigned standing);
unsigned ledger_bit(const struct setup *setup, unsigned node, unsigned owners);
bool exists(const struct state *state, unsigned pod);
bool containers_run(struct pod pod);
void move_version(const struct setup *setup, struct state *state, unsigned pod);
void write_ledger(const struct setup *setup, struct state *state, unsigned node, unsigned owners);
void lose_ledger(const struct setup *setup, struct state *state, unsigned node);
bool commit_fence(const struct setup *setup, struct state *state, unsigned pod, bool version_holds);
bool commit_binding(
    const struct setup *setup, struct state *state, unsigned pod, unsigned gpus, bool former, bool version_holds);
struct state *branch(
    struct moves *moves, const struct state *from, enum event event, unsigned actor, unsigned pod, unsigned gpus);

/* requests.c: what every actor does */
extern const struct actor IDLE_ACTOR;
unsigned swapped(
    const struct setup *setup, unsigned owners, unsigned pod, unsigned begun, unsigned ended, unsigned dropped);
unsigned believed(
    const struct setup *setup, const struct state *state, unsigned node, unsigned but, unsigned standing);
unsigned written(
    const struct setup *setup, const struct state *state, unsigned node, unsigned owners, unsigned list[LEDGERS]);
bool commit(const struct setup *setup, struct state *state, unsigned i);
struct actor spent(struct actor actor);
void hold_up(const struct setup *setup, struct state *state, struct actor actor);
void give_up(const struct setup *setup, const struct state *state, unsigned i, struct moves *moves);

/* binder.c, reconciler.c, and world.c: what happens to pods, nodes and requests under way, and everything together */
void binder_moves(const struct setup *setup, const struct state *state, unsigned i, struct moves *moves);
void reconciler_moves(const struct setup *setup, const struct state *state, unsigned i, struct moves *moves);
void all_moves(const struct setup *setup, const struct state *state, struct moves *moves);

/* twins.c: of states that differ only in who is who, one is kept */
void make_canonical(const struct setup *setup, struct state *state);
unsigned likenesses(const struct setup *setup, const struct state *state);

/* settle.c: whether what was claimed can still be taken back */
struct state calm(const struct setup *setup, const struct state *state);
uint32_t calm_number(const struct state *state);
bool settles(const struct setup *setup, const struct state *state);

#endif
