/* A driver that checkpoints nothing and says it did: for machines without a GPU.

   A process "uses CUDA" if FOLDER/uses/PID exists; FOLDER/state/PID holds where it is. Every call is a line of
   FOLDER/calls. FOLDER/fail-CALL holds the error that a call gives, FOLDER/slow-CALL the milliseconds it takes. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RUNNING 0
#define LOCKED 1
#define CHECKPOINTED 2
#define INVALID_VALUE 1
#define ILLEGAL_STATE 401

typedef struct { unsigned char bytes[16]; } Uuid;
typedef struct { Uuid old_one, new_one; } Pair;
typedef struct { Pair *pairs; unsigned count; } RestoreArgs;
typedef struct { unsigned timeout_ms; } LockArgs;

static int number_in(const char *kind, const char *name, int otherwise) {
    char path[4096];
    int value = otherwise;
    snprintf(path, sizeof path, "%s/%s%s", FOLDER, kind, name);
    FILE *file = fopen(path, "r");
    if (file == NULL) return otherwise;
    if (fscanf(file, "%d", &value) != 1) value = otherwise;
    fclose(file);
    return value;
}

static int state_of(int pid) {
    char name[32];
    snprintf(name, sizeof name, "%d", pid);
    return number_in("state/", name, RUNNING);
}

static int uses_cuda(int pid) {
    char path[4096];
    snprintf(path, sizeof path, "%s/uses/%d", FOLDER, pid);
    return access(path, F_OK) == 0;
}

static void put(const char *name, const char *mode, const char *text) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", FOLDER, name);
    FILE *file = fopen(path, mode);
    if (file == NULL) return;
    fputs(text, file);
    fclose(file);
}

static int change(const char *call, int pid, int from, int to, const char *more) {
    char line[4096], name[64], text[32];
    snprintf(line, sizeof line, "%s %d%s\n", call, pid, more);
    put("calls", "a", line);
    int slow_ms = number_in("slow-", call, 0), error = number_in("fail-", call, 0);
    if (slow_ms) usleep(1000 * slow_ms);
    if (error) return error;
    if (!uses_cuda(pid)) return INVALID_VALUE;
    if (state_of(pid) != from) return ILLEGAL_STATE;
    snprintf(name, sizeof name, "state/%d", pid);
    snprintf(text, sizeof text, "%d", to);
    put(name, "w", text);
    return 0;
}

int cuInit(unsigned flags) { return number_in("fail-", "init", 0); }

int cuGetErrorName(int error, const char **name) {
    *name = error == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : error == 801 ? "CUDA_ERROR_NOT_SUPPORTED"
          : error == 600 ? "CUDA_ERROR_NOT_READY" : error == ILLEGAL_STATE ? "CUDA_ERROR_ILLEGAL_STATE"
          : error == INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE" : NULL;
    return *name == NULL;
}

int cuCheckpointProcessGetState(int pid, int *state) {
    if (!uses_cuda(pid) || access("/proc", F_OK)) return INVALID_VALUE;
    *state = state_of(pid);
    return 0;
}

int cuCheckpointProcessLock(int pid, LockArgs *args) { return change("lock", pid, RUNNING, LOCKED, ""); }

int cuCheckpointProcessCheckpoint(int pid, void *args) { return change("checkpoint", pid, LOCKED, CHECKPOINTED, ""); }

int cuCheckpointProcessRestore(int pid, RestoreArgs *args) {
    char more[2048] = "";
    for (unsigned i = 0; args != NULL && i < args->count && i < 8; i++) {
        char pair[64];
        snprintf(pair, sizeof pair, " %02x>%02x", args->pairs[i].old_one.bytes[0], args->pairs[i].new_one.bytes[0]);
        strcat(more, pair);
    }
    return change("restore", pid, CHECKPOINTED, LOCKED, more);
}

int cuCheckpointProcessUnlock(int pid, void *args) { return change("unlock", pid, LOCKED, RUNNING, ""); }
