/* Helper threads that share the work of one kernel at a time; see team.py.
 *
 * A job is an array of numbers: the function, the count of items, the items of a piece, and the words that the function takes
 * for the whole job.  For a piece, which any thread may take, the words are copied: one of them becomes the count of the
 * piece, and the addresses advance to its beginning.
 *
 * Helpers know nothing of Python.  They watch for the next job for a while before they sleep, since waking a thread takes
 * longer than many kernels; but other work on their core comes first.  No caller waits for an idle helper: the caller takes
 * pieces, too, until none are left.
 */

#define _GNU_SOURCE

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef __linux__
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
/* SCHED_FLAG_KEEP_POLICY from Linux's sched.h. */
#define KEEP_POLICY 8
#endif

/* The fields of a job.  Two numbers for each address follow, its position among the words and its step in bytes, and then the
 * words. */
enum { FUNCTION, THREADS, COUNT_AT, COUNT, STEP, ADDRESSES, WORDS, HEAD };

/* How long helpers watch for another job, in nanoseconds. */
#define WATCH 300000

/* A helper that gets its core back later than this after yielding, in nanoseconds, has met another thread that keeps the core
 * for a whole turn.  For the next CROWDED jobs it sleeps instead of watching: being woken is quicker. */
#define TAKEN 200000
#define CROWDED 16

/* The length of the helpers' turns, where the system lets a thread choose it, in nanoseconds. */
#define SHORT_TURN 100000

/* How long the caller's cores and niceness are cached, in nanoseconds. */
#define BELIEVED 10000000

#define MOST_THREADS 256

/* The most pieces of a job: two piece numbers and the job's number share a word. */
#define MOST_PIECES 0xffff

typedef void (*kernel)(const int64_t *);

/* Fields that different threads write lie in different lines of the cache. */
#define APART __attribute__((aligned(64)))

static struct {
    /* For each thread, its own pieces: the job's number, the one behind the last piece, and the next piece. */
    struct { APART _Atomic uint64_t pieces; } own[MOST_THREADS];
    APART _Atomic uint32_t number;
    APART _Atomic int64_t unfinished;
    APART _Atomic int taken;
    APART _Atomic int asleep;
    APART const int64_t *job;
    _Atomic int64_t threads;
    int64_t helpers, ended;
    pthread_mutex_t lock;
    /* Helpers wait for a job on `bell`, and for a larger number of threads on `call`. */
    pthread_cond_t bell, call;
    /* The system's number of each thread. */
    _Atomic int ids[MOST_THREADS];
    /* When the caller's cores and niceness were last read; the number of cores, and of helpers that have been moved to
     * them. */
    int64_t looked, cores, placed;
    int nice;
} team = {.lock = PTHREAD_MUTEX_INITIALIZER, .bell = PTHREAD_COND_INITIALIZER, .call = PTHREAD_COND_INITIALIZER,
          .cores = MOST_THREADS};

static inline int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static inline void breathe(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void compute(const int64_t *job, int64_t piece) {
    const int64_t *moves = job + HEAD, *words = moves + 2 * job[ADDRESSES];
    int64_t own[job[WORDS]];
    memcpy(own, words, sizeof own);
    int64_t start = piece * job[STEP], left = job[COUNT] - start;
    own[job[COUNT_AT]] = left < job[STEP] ? left : job[STEP];
    for (int64_t i = 0; i < job[ADDRESSES]; i++) own[moves[2 * i]] += start * moves[2 * i + 1];
    ((kernel)job[FUNCTION])(own);
}

/* Compute the unclaimed pieces of one thread.  A thread's cache holds its own pieces from the job before, the last ones best:
 * so it begins with the first piece and with the last by turns, from job to job.  Other threads begin at the other end. */
static void compute_pieces_of(int64_t thread, int mine) {
    _Atomic uint64_t *place = &team.own[thread].pieces;
    uint64_t pieces = atomic_load(place);
    const int first = mine != (pieces >> 32 & 1);
    for (;;) {
        int64_t next = pieces & MOST_PIECES, end = pieces >> 16 & MOST_PIECES;
        if (next >= end) return;
        if (!atomic_compare_exchange_weak(place, &pieces, first ? pieces + 1 : pieces - (1 << 16))) continue;
        /* The job stays until this piece is finished. */
        compute(team.job, first ? next : end - 1);
        atomic_fetch_sub(&team.unfinished, 1);
        pieces = atomic_load(place);
    }
}

static void compute_as(int64_t me, int64_t threads) {
    compute_pieces_of(me, 1);
    for (int64_t i = 1; i < threads; i++) compute_pieces_of((me + i) % threads, 0);
}

/* A thread that is woken often lands on the core of the thread that has woken it, or on a busy one, and stays there for tens of
 * milliseconds although another core is idle: so helpers are kept from the caller's core.  They run on the caller's other cores
 * with the caller's niceness, also when these change later. */
#ifdef __linux__
static void register_helper(int64_t me) {
    atomic_store(&team.ids[me], (int)syscall(SYS_gettid));
    prctl(PR_SET_NAME, "vmflow-kernel");
#ifdef SYS_sched_setattr
    /* A thread with short turns gets one as soon as it is woken, and loses no more than one by yielding: BLAS's threads spin for
     * a tenth of a second without yielding.  Linux supports this since 6.12. */
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attributes = {.size = sizeof attributes, .flags = KEEP_POLICY, .runtime = SHORT_TURN};
    attributes.nice = getpriority(PRIO_PROCESS, 0);
    syscall(SYS_sched_setattr, 0, &attributes, 0);
#endif
}
static void look_at_cores(void) {
    static cpu_set_t before;
    if (team.helpers == team.placed && now() < team.looked + BELIEVED) return;
    team.looked = now();
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof cores, &cores)) return;
    team.cores = CPU_COUNT(&cores);
    if (team.cores > 1) CPU_CLR(sched_getcpu(), &cores);
    const int nice = getpriority(PRIO_PROCESS, 0);
    if (team.helpers == team.placed && nice == team.nice && CPU_EQUAL(&cores, &before)) return;
    before = cores;
    team.nice = nice;
    team.placed = team.helpers;
    for (int64_t i = 1; i <= team.helpers; i++) {
        const int id = atomic_load(&team.ids[i]);
        if (!id) {
            team.placed = 0; /* it has just been started */
            continue;
        }
        sched_setaffinity(id, sizeof cores, &cores);
        /* A lower niceness may need a privilege; without it the helper keeps its own. */
        if (getpriority(PRIO_PROCESS, id) != nice) setpriority(PRIO_PROCESS, id, nice);
    }
}
#else
static void register_helper(int64_t me) { (void)me; }
static void look_at_cores(void) {}
#endif

/* Watch for a job with another number than `seen`; returns whether there is one. */
static int watch(uint32_t seen, int64_t *crowded) {
    const int64_t begin = now();
    for (int64_t at = begin; at < begin + WATCH; at = now()) {
        for (int i = 0; i < 32; i++) {
            if (atomic_load(&team.number) != seen) return 1;
            breathe();
        }
        const int64_t before = now();
        sched_yield();
        if (now() - before > TAKEN) {
            *crowded = CROWDED;
            break;
        }
    }
    return atomic_load(&team.number) != seen;
}

static void *help(void *number) {
    const int64_t me = (intptr_t)number;
    uint32_t seen = 0;
    /* For so many more jobs, sleep instead of watching, since another thread wants this core. */
    int64_t crowded = 0;
    register_helper(me);
    for (;;) {
        if (me >= atomic_load(&team.threads)) {
            pthread_mutex_lock(&team.lock);
            while (me >= atomic_load(&team.threads)) pthread_cond_wait(&team.call, &team.lock);
            pthread_mutex_unlock(&team.lock);
        }
        int sleeps;
        if (crowded) {
            crowded--;
            sleeps = 1;
        } else sleeps = !watch(seen, &crowded);
        if (sleeps) {
            pthread_mutex_lock(&team.lock);
            atomic_fetch_add(&team.asleep, 1);
            /* The caller publishes the job before it looks for sleepers, so that one of the two sees the other. */
            if (atomic_load(&team.number) == seen) pthread_cond_wait(&team.bell, &team.lock);
            atomic_fetch_sub(&team.asleep, 1);
            pthread_mutex_unlock(&team.lock);
        }
        if (atomic_load(&team.number) == seen) continue;
        seen = atomic_load(&team.number);
        const int64_t threads = atomic_load(&team.threads);
        if (me < threads) compute_as(me, threads);
    }
    return NULL;
}

static void start_helpers(int64_t wanted) {
    /* Signals are for the program's threads, except those that report an error of the helper itself. */
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
    sigset_t others, before;
    sigfillset(&others);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) sigdelset(&others, own[i]);
    pthread_sigmask(SIG_SETMASK, &others, &before);
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    while (team.helpers < wanted) {
        pthread_t made;
        if (pthread_create(&made, &detached, help, (void *)(intptr_t)(team.helpers + 1))) break;
        team.helpers++;
    }
    pthread_attr_destroy(&detached);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Compute a job.  While another thread's job is running, the caller computes alone.
 *
 * long_one: whether the job is worth waking sleeping helpers; a short job is, too, if it follows soon after another. */
void team_run(const int64_t *job, int64_t long_one) {
    const int64_t pieces = (job[COUNT] + job[STEP] - 1) / job[STEP];
    const int taken = pieces > MOST_PIECES || atomic_exchange(&team.taken, 1);
    if (!taken) look_at_cores();
    if (taken || team.cores == 1) {
        for (int64_t piece = 0; piece < pieces; piece++) compute(job, piece);
        if (!taken) atomic_store(&team.taken, 0);
        return;
    }
    const int64_t threads = job[THREADS] < MOST_THREADS ? job[THREADS] : MOST_THREADS;
    if (team.helpers < threads - 1) start_helpers(threads - 1);
    const uint32_t number = atomic_load(&team.number) + 1;
    team.job = job;
    const int more = threads > atomic_load(&team.threads);
    atomic_store(&team.threads, threads);
    atomic_store(&team.unfinished, pieces);
    for (int64_t i = 0; i < threads; i++) {
        const uint64_t next = pieces * i / threads, end = pieces * (i + 1) / threads;
        atomic_store(&team.own[i].pieces, (uint64_t)number << 32 | end << 16 | next);
    }
    atomic_store(&team.number, number);
    const int wakes = atomic_load(&team.asleep) && (long_one || now() < team.ended + WATCH);
    if (wakes || more) {
        pthread_mutex_lock(&team.lock);
        if (wakes) pthread_cond_broadcast(&team.bell);
        if (more) pthread_cond_broadcast(&team.call);
        pthread_mutex_unlock(&team.lock);
    }
    compute_as(0, threads);
    for (int64_t looks = 1; atomic_load(&team.unfinished); looks++) {
        breathe();
        if (looks % 64 == 0) sched_yield();
    }
    team.ended = now();
    atomic_store(&team.taken, 0);
}

/* A forked child has no helpers, and no other thread that runs a job. */
static void forget(void) {
    team.helpers = team.placed = 0;
    atomic_store(&team.asleep, 0);
    atomic_store(&team.threads, 0);
    atomic_store(&team.unfinished, 0);
    for (int64_t i = 0; i < MOST_THREADS; i++) atomic_store(&team.own[i].pieces, 0);
    for (int64_t i = 0; i < MOST_THREADS; i++) atomic_store(&team.ids[i], 0);
    const pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const pthread_cond_t bell = PTHREAD_COND_INITIALIZER;
    team.lock = lock;
    team.bell = team.call = bell;
    atomic_store(&team.taken, 0);
}

__attribute__((constructor)) static void prepare(void) { pthread_atfork(NULL, NULL, forget); }

/* The number of helpers. */
int64_t team_helpers(void) { return team.helpers; }
