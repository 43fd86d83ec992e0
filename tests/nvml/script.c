/*
 * Plays what happens to the machine over time. The script is the file beside the description, `<description>.script`:
 *
 *   at SECONDS STATEMENT       in the order of their times; `#` starts a comment
 *
 * STATEMENT is any statement of a description (machine.c): `gpu 3 recovery_action 1`, `link 2 0-3 inactive`, `init
 * DRIVER_NOT_LOADED`, `gpu 3 uuid GPU-another`, `fail * 3 GPU_IS_LOST`, `hang nvmlDeviceGetFieldValues 3 0.5`; or one of
 *
 *   xid GPU NUMBER                          a critical error, delivered once to each event set that exists then
 *   rise GPUS KEY PER_SECOND for SECONDS    a counter of errors.c, `uncorrected_errors` or `energy_mj` grows by the clock
 *   heal GPUS                               what was said to fail or hang for them does so no more
 *   reset GPUS                              healed; energy and what counts since the driver was loaded begin at nought, and the
 *                                           driver asks for nothing
 *   remove GPUS                             they are gone, and the indexes of those behind them are lower
 *
 * What time it is stands in `<description>.clock`, so that all processes agree; one line:
 *
 *   begins EPOCH SPEED         the script began at EPOCH, and SPEED of its seconds pass in one
 *   stands SECONDS             it is so late, and stays so
 *
 * Whoever initialises NVML sees all that is due; where the clock runs, so does whoever has it open already.
 */
#include "abi.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static FILE *beside(const char *ending) {
    char name[4096];
    const char *description = getenv("GPUTOPO_FAKE_NVML");
    snprintf(name, sizeof name, "%s.%s", description ? description : "", ending);
    return fopen(name, "r");
}

/* The time of the script; before its beginning where there is none. Where it runs, *speed is how fast; else 0. */
static double script_now(double *speed) {
    struct timespec now;
    double first = 0, second = 0;
    char line[128] = "";
    FILE *clock = beside("clock");
    *speed = 0;
    if (!clock) return -1;
    if (!fgets(line, sizeof line, clock)) *line = 0;
    fclose(clock);
    if (sscanf(line, "stands %lf", &first) == 1) return first;
    if (sscanf(line, "begins %lf %lf", &first, &second) != 2) return -1;
    clock_gettime(CLOCK_REALTIME, &now);
    *speed = second;
    return ((double)now.tv_sec + now.tv_nsec / 1e9 - first) * second;
}

/* The statement of a line `at SECONDS STATEMENT`, without its end; NULL where there is none. */
static char *statement(char *line, double *at) {
    int read = 0;
    line[strcspn(line, "#\r\n")] = 0;
    if (sscanf(line, " at %lf %n", at, &read) != 1 || !read) return NULL;
    for (char *end = line + strlen(line); end > line && (end[-1] == ' ' || end[-1] == '\t');) *--end = 0;
    return line[read] ? line + read : NULL;
}

static void remove_gpu(struct machine *machine, int gone) {
    for (int a = gone; a < MAX_GPUS - 1; a++) {
        machine->gpus[a] = machine->gpus[a + 1];
        memcpy(machine->path[a], machine->path[a + 1], sizeof machine->path[a]);
        memcpy(machine->p2p[a], machine->p2p[a + 1], sizeof machine->p2p[a]);
    }
    for (int a = 0; a < MAX_GPUS; a++)
        for (int b = gone; b < MAX_GPUS - 1; b++) {
            machine->path[a][b] = machine->path[a][b + 1];
            memcpy(machine->p2p[a][b], machine->p2p[a][b + 1], sizeof machine->p2p[a][b]);
        }
    for (int n = 0; n < machine->failure_count; n++) {
        unsigned long gpus = machine->failures[n].gpus, below = (1UL << gone) - 1;
        machine->failures[n].gpus = (gpus & below) | (gpus >> 1 & ~below);
    }
    machine->gpu_count--;
}

static void heal(struct machine *machine, int gpu) {
    for (int n = 0; n < machine->failure_count; n++) machine->failures[n].gpus &= ~(1UL << gpu);
}

static void reset(struct machine *machine, int index) {
    struct gpu *gpu = &machine->gpus[index];
    heal(machine, index);
    forget_volatile_errors(gpu);
    if (gpu->recovery_action != ABSENT) gpu->recovery_action = 0;
    if (gpu->energy_mj != ABSENT) gpu->energy_mj = 0;
}

static bool rise(struct gpu *gpu, const char *key, double by) {
    int *plain = !strcmp(key, "energy_mj") ? &gpu->energy_mj : !strcmp(key, "uncorrected_errors") ? &gpu->uncorrected_errors : NULL;
    long long *counter = error_counter(gpu, key);
    if (plain) return *plain = (*plain == ABSENT ? 0 : *plain) + (int)by, true;
    if (counter) return *counter = (*counter == UNSAID ? 0 : *counter) + (long long)by, true;
    return false;
}

/* False where it is none that only a script has. */
static bool play(struct machine *machine, const char *text, double since, bool *good) {
    char word[16], set[64], key[NAME];
    double rate = 0, lasts = 0;
    unsigned long gpus = 0;
    int count = sscanf(text, "%15s %63s %95s %lf for %lf", word, set, key, &rate, &lasts);
    bool rises = !strcmp(word, "rise") && count == 5, heals = !strcmp(word, "heal"), resets = !strcmp(word, "reset");
    bool removes = !strcmp(word, "remove");
    if (count < 1 || !strcmp(word, "xid")) return true;
    if (!rises && !heals && !resets && !removes) return false;
    *good = count >= 2 && parse_set(set, &gpus, machine->gpu_count);
    for (int index = machine->gpu_count - 1; *good && index >= 0; index--) {
        if (!(gpus >> index & 1)) continue;
        if (heals) heal(machine, index);
        if (resets) reset(machine, index);
        if (removes) remove_gpu(machine, index);
        if (rises) *good = rise(&machine->gpus[index], key, rate * fmin(since, lasts));
    }
    return true;
}

bool play_script(struct machine *machine, double *next_seconds) {
    char line[512], copy[512];
    double speed, now = script_now(&speed), at;
    bool good = true;
    FILE *script = beside("script");
    *next_seconds = INFINITY;
    for (int number = 1; script && good && fgets(line, sizeof line, script); number++) {
        memcpy(copy, line, sizeof copy);
        char *text = statement(line, &at);
        if (!text) continue;
        if (at > now) {
            if (speed > 0) *next_seconds = (at - now) / speed;
            break;
        }
        if (!play(machine, text, now - at, &good)) good = read_statement(machine, text);
        if (!good) fprintf(stderr, "fake nvml: script line %d: cannot play `%s`\n", number, copy);
    }
    if (script) fclose(script);
    return good;
}

bool next_scripted_xid(long *read, unsigned *gpu, unsigned *xid) {
    char line[512];
    double speed, now = script_now(&speed), at;
    bool found = false;
    FILE *script = beside("script");
    if (script && !fseek(script, *read, SEEK_SET))
        while (!found && fgets(line, sizeof line, script)) {
            char *text = statement(line, &at);
            if (text && at > now) break;
            *read = ftell(script);
            found = text && sscanf(text, "xid %u %u", gpu, xid) == 2 && *gpu < MAX_GPUS;
        }
    if (script) fclose(script);
    return found;
}
