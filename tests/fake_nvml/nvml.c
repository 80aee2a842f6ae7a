/* A small libnvidia-ml.so.1 for tests: answers from a text file named by FAKE_NVML, read again when it was replaced.
 *
 *   init 9                          what nvmlInit returns
 *   count 2                         how many boards
 *   0.uuid GPU-aaaa                 board 0; also name, minor, total, reserved, free, busy, memory_busy, temperature,
 *                                   slowdown, power (mW), limit (mW), energy (mJ), replays, clock, reasons,
 *                                   memory_temperature, action
 *   0.process 4242 1048576          once per process; "-" bytes for a share that is not told
 *   0.error nvmlDeviceGetName 3     this function returns this for this board
 *   0.hang nvmlDeviceGetName        this function never returns
 *   0.mig 100 101                   MIG instances: boards of their own numbers, with gi and ci
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef unsigned int u32;
typedef unsigned long long u64;
typedef int *device;

static int numbers[1000];

/* The file, read again when it was replaced. */
static const char *text(void) {
    static char *kept = NULL;
    static struct stat seen;
    struct stat now;
    const char *path = getenv("FAKE_NVML");
    FILE *file;
    if (!path || stat(path, &now)) return "";
    if (kept && now.st_ino == seen.st_ino && now.st_mtime == seen.st_mtime && now.st_size == seen.st_size) return kept;
    if (!(file = fopen(path, "r"))) return "";
    free(kept);
    kept = calloc(1, (size_t)now.st_size + 1);
    if (fread(kept, 1, (size_t)now.st_size, file) != (size_t)now.st_size) kept[0] = 0;
    fclose(file);
    seen = now;
    return kept;
}

/* The rest of the nth line that starts with "KEY " or, for a board, "INDEX.KEY ". */
static int find(int index, const char *key, int nth, char *out, size_t size) {
    char want[128];
    size_t length;
    if (index < 0) snprintf(want, sizeof want, "%s ", key);
    else snprintf(want, sizeof want, "%d.%s ", index, key);
    length = strlen(want);
    for (const char *line = text(); *line; line = strchr(line, '\n') + 1) {
        if (strncmp(line, want, length) == 0 && nth-- == 0) {
            size_t rest = strcspn(line + length, "\n");
            snprintf(out, size, "%.*s", (int)rest, line + length);
            return 1;
        }
    }
    return 0;
}

static int enter(int index, const char *function) {
    char line[512], name[256];
    int code;
    for (int n = 0; find(index, "hang", n, line, sizeof line); n++)
        if (strcmp(line, function) == 0) for (;;) pause();
    for (int n = 0; find(index, "error", n, line, sizeof line); n++)
        if (sscanf(line, "%255s %d", name, &code) == 2 && strcmp(name, function) == 0) return code;
    return 0;
}

static int value(int index, const char *key, u64 *out) {
    char line[512];
    if (!find(index, key, 0, line, sizeof line)) return 3; /* NOT_SUPPORTED */
    *out = strtoull(line, NULL, 0);
    return 0;
}

#define ENTER(device) do { int code_ = enter(*(device), __func__); if (code_) return code_; } while (0)

static int number(device d, const char *function, const char *key, u32 *out) {
    u64 found;
    int code = enter(*d, function);
    if (!code) code = value(*d, key, &found);
    if (!code) *out = (u32)found;
    return code;
}

static int words(device d, const char *function, const char *key, char *out, u32 size) {
    int code = enter(*d, function);
    if (code) return code;
    return find(*d, key, 0, out, size) ? 0 : 3;
}

int nvmlInitWithFlags(u32 flags) {
    u64 code = 0;
    (void)flags;
    value(-1, "init", &code);
    return (int)code;
}

int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { (void)code; return "an error of the fake"; }

int nvmlDeviceGetCount_v2(u32 *out) {
    u64 count = 0;
    int code = enter(-1, __func__);
    value(-1, "count", &count);
    *out = (u32)count;
    return code;
}

int nvmlDeviceGetHandleByIndex_v2(u32 index, device *out) {
    numbers[index] = (int)index;
    *out = &numbers[index];
    ENTER(*out);
    return 0;
}

int nvmlDeviceGetUUID(device d, char *out, u32 size) { return words(d, __func__, "uuid", out, size); }
int nvmlDeviceGetName(device d, char *out, u32 size) { return words(d, __func__, "name", out, size); }
int nvmlDeviceGetMinorNumber(device d, u32 *out) { return number(d, __func__, "minor", out); }

struct memory { u64 total, free, used; };
struct memory_v2 { u32 version; u64 total, reserved, free, used; };

int nvmlDeviceGetMemoryInfo(device d, struct memory *out) {
    ENTER(d);
    if (value(*d, "total", &out->total) || value(*d, "free", &out->free)) return 3;
    out->used = out->total - out->free;
    return 0;
}

int nvmlDeviceGetMemoryInfo_v2(device d, struct memory_v2 *out) {
    ENTER(d);
    if (value(*d, "total", &out->total) || value(*d, "free", &out->free)) return 3;
    if (value(*d, "reserved", &out->reserved)) return 25;
    out->used = out->total - out->free - out->reserved;
    return 0;
}

struct utilization { u32 gpu, memory; };
int nvmlDeviceGetUtilizationRates(device d, struct utilization *out) {
    int code = number(d, __func__, "busy", &out->gpu);
    return code ? code : number(d, __func__, "memory_busy", &out->memory);
}

int nvmlDeviceGetTemperature(device d, int sensor, u32 *out) { (void)sensor; return number(d, __func__, "temperature", out); }
int nvmlDeviceGetTemperatureThreshold(device d, int which, u32 *out) { (void)which; return number(d, __func__, "slowdown", out); }
int nvmlDeviceGetPowerUsage(device d, u32 *out) { return number(d, __func__, "power", out); }
int nvmlDeviceGetEnforcedPowerLimit(device d, u32 *out) { return number(d, __func__, "limit", out); }
int nvmlDeviceGetPcieReplayCounter(device d, u32 *out) { return number(d, __func__, "replays", out); }
int nvmlDeviceGetTotalEnergyConsumption(device d, u64 *out) { ENTER(d); return value(*d, "energy", out); }
int nvmlDeviceGetClockInfo(device d, int which, u32 *out) { (void)which; return number(d, __func__, "clock", out); }
int nvmlDeviceGetCurrentClocksEventReasons(device d, u64 *out) { ENTER(d); return value(*d, "reasons", out); }

struct field { u32 field, scope; long long at, latency; u32 type; u32 code; union { u32 ui; u64 ull; double d; } value; };
int nvmlDeviceGetFieldValues(device d, int count, struct field *fields) {
    ENTER(d);
    for (int i = 0; i < count; i++) {
        u64 found = 0;
        fields[i].code = (u32)value(*d, fields[i].field == 82 ? "memory_temperature" : "action", &found);
        fields[i].value.ui = (u32)found;
    }
    return 0;
}

struct process { u32 pid; u64 used; u32 gi, ci; };
static int processes(device d, const char *function, u32 *count, struct process *out) {
    char line[512], size[64];
    u32 pid, found = 0;
    int code = enter(*d, function);
    if (code) return code;
    for (int n = 0; find(*d, "process", n, line, sizeof line); n++) {
        if (sscanf(line, "%u %63s", &pid, size) != 2) continue;
        if (out && found < *count) {
            out[found].pid = pid;
            out[found].used = strcmp(size, "-") ? strtoull(size, NULL, 0) : ~0ULL;
        }
        found++;
    }
    if (found && (!out || found > *count)) { *count = found; return 7; /* INSUFFICIENT_SIZE */ }
    *count = found;
    return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(device d, u32 *count, struct process *out) { return processes(d, __func__, count, out); }
int nvmlDeviceGetGraphicsRunningProcesses_v3(device d, u32 *count, struct process *out) {
    ENTER(d);
    (void)out;
    *count = 0;
    return 0;
}

int nvmlDeviceGetMigMode(device d, u32 *now, u32 *pending) {
    char line[512];
    ENTER(d);
    *now = *pending = (u32)find(*d, "mig", 0, line, sizeof line);
    return *now ? 0 : 3;
}
static int instance(int index, u32 nth) {
    char line[512];
    if (!find(index, "mig", 0, line, sizeof line)) return -1;
    for (char *word = strtok(line, " "); word; word = strtok(NULL, " "))
        if (nth-- == 0) return atoi(word);
    return -1;
}
int nvmlDeviceGetMaxMigDeviceCount(device d, u32 *out) { ENTER(d); *out = 7; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(device d, u32 nth, device *out) {
    int found = instance(*d, nth);
    if (found < 0) return 6; /* NOT_FOUND */
    numbers[found] = found;
    *out = &numbers[found];
    return 0;
}
int nvmlDeviceGetGpuInstanceId(device d, u32 *out) { return number(d, __func__, "gi", out); }
int nvmlDeviceGetComputeInstanceId(device d, u32 *out) { return number(d, __func__, "ci", out); }
