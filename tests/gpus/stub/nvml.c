/* A stand-in for libnvidia-ml.so.1, for tests: the calls that supervise makes, answered from a text file.
 *
 * NVML_STUB_STATE names the file; it is read again at each call, so a test changes it while the library is in use:
 *
 *     init RC MILLISECONDS                       what nvmlInit answers, and after how long
 *     memory_v2 RC                               what the v2 memory call answers where the GPU itself is well
 *     gpu INDEX UUID TOTAL RESERVED USED UTIL RC MIG MINOR PID,PID,...|-     sizes in bytes; RC 1000: never answers
 *     health INDEX ERRORS PENDING FAILED         memory errors that could not be corrected, row remappings; ERRORS -1:
 *                                                this GPU has no ECC
 *     xid INDEX CODE                             an event, told once to whoever registered for it
 *
 * NVML_STUB_CALLS, if set, names a file that gets one line for each call: NAME INDEX.
 * Compiled with -DNO_MEMORY_V2 or -DNO_V3 the library lacks those symbols, as drivers before 515 and 510 do.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CARDS 64
#define PIDS 32
#define HANGS 1000

enum { OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, TIMED_OUT = 10,
       VERSION_MISMATCH = 25, UNKNOWN = 999 };

typedef unsigned long long u64;
struct card { int index; char uuid[96]; u64 total, reserved, used; int util, rc, mig, minor, count; unsigned pids[PIDS];
              int errors, pending, failed; };
struct state { int init_rc, init_ms, v2_rc, cards, events, event_of[PIDS], event_code[PIDS]; struct card card[CARDS]; };
struct handle { char uuid[96]; };

static struct handle handles[CARDS];
static int opened;

static struct state *state(void) {
    static struct state now;
    char line[1024], pids[512];
    memset(&now, 0, sizeof now);
    FILE *file = fopen(getenv("NVML_STUB_STATE"), "r");
    if (!file) { now.init_rc = UNKNOWN; return &now; }
    while (fgets(line, sizeof line, file)) {
        struct card *c = &now.card[now.cards];
        if (sscanf(line, "init %d %d", &now.init_rc, &now.init_ms) == 2) continue;
        if (sscanf(line, "memory_v2 %d", &now.v2_rc) == 1) continue;
        int at, errors, pending, failed;
        if (sscanf(line, "health %d %d %d %d", &at, &errors, &pending, &failed) == 4) {
            for (int i = 0; i < now.cards; i++)
                if (now.card[i].index == at) {
                    now.card[i].errors = errors;
                    now.card[i].pending = pending;
                    now.card[i].failed = failed;
                }
            continue;
        }
        if (now.events < PIDS && sscanf(line, "xid %d %d", &at, &errors) == 2) {
            now.event_of[now.events] = at;
            now.event_code[now.events++] = errors;
            continue;
        }
        if (now.cards < CARDS && sscanf(line, "gpu %d %95s %llu %llu %llu %d %d %d %d %511s", &c->index, c->uuid,
                &c->total, &c->reserved, &c->used, &c->util, &c->rc, &c->mig, &c->minor, pids) == 10) {
            for (char *p = strtok(pids, ",-"); p && c->count < PIDS; p = strtok(NULL, ",-"))
                c->pids[c->count++] = (unsigned)atoi(p);
            now.cards++;
        }
    }
    fclose(file);
    return &now;
}

static void count(const char *name, int index) {
    const char *path = getenv("NVML_STUB_CALLS");
    if (!path) return;
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    dprintf(fd, "%s %d\n", name, index);
    close(fd);
}

/* The card of a handle in *card, or the code to answer with. */
static int find(const char *name, struct handle *handle, struct card **card) {
    struct state *now = state();
    if (!opened) return UNINITIALIZED;
    for (int i = 0; i < now->cards; i++) {
        *card = &now->card[i];
        if (strcmp((*card)->uuid, handle->uuid)) continue;
        count(name, (*card)->index);
        if ((*card)->rc == HANGS) for (;;) pause();
        return (*card)->rc;
    }
    return NOT_FOUND;
}

static int handle_of(struct card *card, struct handle **out) {
    for (int i = 0; i < CARDS; i++) {
        if (!handles[i].uuid[0]) strcpy(handles[i].uuid, card->uuid);
        if (!strcmp(handles[i].uuid, card->uuid)) { *out = &handles[i]; return OK; }
    }
    return UNKNOWN;
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    struct state *now = state();
    count("nvmlInit", -1);
    usleep((unsigned)now->init_ms * 1000);
    opened = now->init_rc == OK;
    return now->init_rc;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { opened = 0; return OK; }
const char *nvmlErrorString(int rc) { (void)rc; return "stub error"; }

int nvmlSystemGetDriverVersion(char *out, unsigned size) {
    snprintf(out, size, "999.01");
    return opened ? OK : UNINITIALIZED;
}
int nvmlDeviceGetCount_v2(unsigned *out) {
    count("nvmlDeviceGetCount", -1);
    *out = (unsigned)state()->cards;
    return opened ? OK : UNINITIALIZED;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct handle **out) {
    struct state *now = state();
    count("nvmlDeviceGetHandleByIndex", (int)index);
    for (int i = 0; i < now->cards; i++)
        if (now->card[i].index == (int)index)
            return now->card[i].rc && now->card[i].rc != HANGS ? now->card[i].rc : handle_of(&now->card[i], out);
    return opened ? INVALID_ARGUMENT : UNINITIALIZED;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, struct handle **out) {
    struct state *now = state();
    count("nvmlDeviceGetHandleByUUID", -1);
    for (int i = 0; i < now->cards; i++)
        if (!strcmp(now->card[i].uuid, uuid))
            return now->card[i].rc && now->card[i].rc != HANGS ? now->card[i].rc : handle_of(&now->card[i], out);
    return opened ? NOT_FOUND : UNINITIALIZED;
}

#define CALL(name, args, ...) \
    int name(struct handle *handle, args) { \
        struct card *card; \
        int rc = find(#name, handle, &card); \
        if (rc) return rc; \
        __VA_ARGS__ \
        return OK; \
    }
#define AND ,

CALL(nvmlDeviceGetUUID, char *out AND unsigned size, snprintf(out, size, "%s", card->uuid);)
CALL(nvmlDeviceGetName, char *out AND unsigned size, snprintf(out, size, "Stub GPU");)
CALL(nvmlDeviceGetIndex, unsigned *out, *out = (unsigned)card->index;)
CALL(nvmlDeviceGetMinorNumber, unsigned *out, *out = (unsigned)card->minor;)
CALL(nvmlDeviceGetTemperature, int sensor AND unsigned *out, (void)sensor; *out = 41;)
CALL(nvmlDeviceGetPowerUsage, unsigned *out, *out = 123000;)

int nvmlDeviceGetMigMode(struct handle *handle, unsigned *current, unsigned *pending) {
    struct card *card;
    int rc = find("nvmlDeviceGetMigMode", handle, &card);
    if (rc) return rc;
    if (card->mig < 0) return NOT_SUPPORTED;
    *current = *pending = (unsigned)card->mig;
    return OK;
}

struct util { unsigned gpu, memory; };
CALL(nvmlDeviceGetUtilizationRates, struct util *out, if (card->util < 0) return NOT_SUPPORTED;
     out->gpu = (unsigned)card->util; out->memory = 0;)

struct memory { u64 total, free, used; };
CALL(nvmlDeviceGetMemoryInfo, struct memory *out, out->total = card->total; out->used = card->used + card->reserved;
     out->free = card->total - out->used;)

#ifndef NO_MEMORY_V2
struct memory2 { unsigned version; u64 total, reserved, free, used; };
CALL(nvmlDeviceGetMemoryInfo_v2, struct memory2 *out, if (state()->v2_rc) return state()->v2_rc;
     if (out->version != 0x02000028) return VERSION_MISMATCH;
     out->total = card->total; out->reserved = card->reserved; out->used = card->used;
     out->free = card->total - card->used - card->reserved;)
#endif

struct process { unsigned pid; u64 used; unsigned gpu_instance, compute_instance; };
static int processes(const char *name, struct handle *handle, unsigned *size, struct process *out, int with) {
    struct card *card;
    int rc = find(name, handle, &card);
    if (rc) return rc;
    unsigned have = with ? (unsigned)card->count : 0, room = *size;
    *size = have;
    if (have == 0) return OK;
    if (room < have || !out) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < have; i++) out[i] = (struct process){card->pids[i], card->used / have, ~0u, ~0u};
    return OK;
}
#define LIST(name, with) \
    int name(struct handle *handle, unsigned *size, struct process *out) { \
        return processes(#name, handle, size, out, with); \
    }
#ifndef NO_V3
LIST(nvmlDeviceGetComputeRunningProcesses_v3, 1)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, 0)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, 0)
#endif
LIST(nvmlDeviceGetComputeRunningProcesses_v2, 1)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, 0)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, 0)

CALL(nvmlDeviceGetTotalEccErrors, int type AND int counter AND u64 *out, if (card->errors < 0) return NOT_SUPPORTED;
     if (type != 1 || counter != 0) return INVALID_ARGUMENT; *out = (u64)card->errors;)
CALL(nvmlDeviceGetRemappedRows, unsigned *corrected AND unsigned *uncorrected AND unsigned *pending AND unsigned *failed,
     if (card->errors < 0) return NOT_SUPPORTED; *corrected = *uncorrected = 0;
     *pending = (unsigned)card->pending; *failed = (unsigned)card->failed;)

struct pci { char legacy[16]; unsigned domain, bus, device, ids, subsystem; char bus_id[32]; };
CALL(nvmlDeviceGetPciInfo_v3, struct pci *out, memset(out, 0, sizeof *out);
     snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", 0x3b + (unsigned)card->index);)

struct event { struct handle *device; u64 type, data; unsigned gpu_instance, compute_instance; };
static int told, registered[CARDS];
int nvmlEventSetCreate(void **set) { *set = &told; return opened ? OK : UNINITIALIZED; }
CALL(nvmlDeviceRegisterEvents, u64 types AND void *set, (void)set; if (!(types & 8)) return INVALID_ARGUMENT;
     registered[card->index] = 1;)
int nvmlEventSetWait_v2(void *set, struct event *out, unsigned timeout_ms) {
    struct state *now = state();
    (void)set;
    (void)timeout_ms;
    if (told >= now->events) return TIMED_OUT;
    for (int i = 0; i < now->cards; i++)
        if (now->card[i].index == now->event_of[told] && registered[now->card[i].index]) {
            *out = (struct event){NULL, 8, (u64)now->event_code[told++], 0, 0};
            return handle_of(&now->card[i], &out->device);
        }
    return TIMED_OUT;
}
