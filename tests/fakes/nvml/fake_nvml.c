/* libnvidia-ml.so.1 for machines without GPUs: NVML's ABI, fed by a flat text file.
 *
 * The file is $LOCKSTEP_FAKE_NVML, else fake-nvml.profile beside this library. It is read at every
 * nvmlInit, so that a test can change the machine below a running program. A line is a key, then
 * values; see profile() in build.py, which writes it from a capture. Lines of a GPU follow its
 * "gpu" line. Values that the profile lacks are NOT_SUPPORTED, as on hardware.
 *
 * $LOCKSTEP_FAKE_NVML_CONTROL, else fake-nvml.control beside the profile, has the events of the
 * running machine. Every call reads it. See control.h, and control.py, which writes it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
  SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6,
  INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, TIMEOUT = 10, ARGUMENT_VERSION_MISMATCH = 25, UNKNOWN = 999
};
enum { GPUS = 64, MIG_MOST = 8, SLICES = GPUS * MIG_MOST, LINKS = 36, TEXT = 96, MASK = 4096, WORD = 64, NOT_TOLD = -1 };
enum { P2P_NVLINK = 2, LEVEL_INTERNAL = 0, LINK_STATE_FIELD = 165, RECOVERY_FIELD = 230 };

typedef struct {
  char busIdLegacy[16];
  unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
  char busId[32];
} PciInfo; /* 68 bytes */
typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } MemoryV2;
typedef struct {
  unsigned version;
  unsigned char clusterUuid[16];
  int status;
  unsigned cliqueId;
  unsigned char state;
  unsigned char padding[3];
  unsigned healthMask;
  unsigned char healthSummary;
} FabricInfoV;
typedef struct {
  unsigned fieldId, scopeId;
  long long timestamp, latencyUsec;
  int valueType, nvmlReturn;
  union { double d; unsigned u; unsigned long ul; unsigned long long ull; long long ll; } value;
} FieldValue;
enum { FABRIC_V2 = 0x02000024, FABRIC_V3 = 0x03000028, MEMORY_V2 = 0x02000028 };

typedef struct { int known, active, remote; char pci[TEXT]; } Link;
typedef struct {
  unsigned gpu, gi, ci, gi_slices, ci_slices;
  unsigned long long mib;
  char uuid[TEXT], name[TEXT];
} Slice;
typedef struct {
  unsigned index;
  char uuid[TEXT], name[TEXT], serial[TEXT], pci[TEXT], part[TEXT];
  unsigned device_id, minor, module, major_cc, minor_cc, mig, mig_pending;
  int has_minor, has_memory, has_module, has_cc, has_mig, has_numa, has_fabric, numa, lost;
  unsigned long long memory;
  uint64_t cpus[MASK / WORD], nodes[MASK / WORD];
  int has_cpus, has_nodes, p2p[GPUS], level[GPUS];
  Link link[LINKS];
  unsigned fabric_state, fabric_clique, fabric_health;
  int fabric_status;
  unsigned char fabric_uuid[16];
  unsigned pcie_generation, pcie_width, slot, tray, host, place;
  int has_pcie, has_platform;
  char chassis[TEXT];
  long long ecc_volatile, ecc_aggregate, recovery, clocks, used, utilization, temperature, power;
  int rows_told, rows[3], pages; /* remapped, pending, failed; NOT_TOLD */
} Gpu;

/* A new read must not move data that other threads use, so several buffers alternate. */
typedef struct {
  int init_error;
  char driver[TEXT], nvml[TEXT];
  int cuda;
  unsigned count, told, slices; /* told: what it says its count is, if not 0 */
  Gpu gpu[GPUS];
  Slice slice[SLICES];
} Machine;
enum { TURNS = 8 };
static Machine machines[TURNS], *now = machines;
static int initialized; /* initialisation count */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
#define machine (*now)

/* ---- the profile ---- */

static void copy(char *to, const char *from) { snprintf(to, TEXT, "%s", from ? from : ""); }

static int read_mask(uint64_t *mask, const char *list) { /* 0-55,112-167 */
  char text[1024], *saved = NULL;
  snprintf(text, sizeof text, "%s", list);
  for (char *part = strtok_r(text, ",", &saved); part; part = strtok_r(NULL, ",", &saved)) {
    char *dash = strchr(part, '-');
    unsigned first = (unsigned)atoi(part), last = dash ? (unsigned)atoi(dash + 1) : first;
    for (unsigned bit = first; bit <= last && bit < MASK; bit++)
      mask[bit / WORD] |= 1ull << (bit % WORD);
  }
  return 1;
}

static void read_row(int *row, const char *values) {
  char *end;
  for (int peer = 0; peer < GPUS; peer++, values = end) {
    long value = strtol(values, &end, 10);
    if (end == values) break;
    row[peer] = (int)value;
  }
}

static void read_link(Gpu *gpu, const char *values) { /* NUMBER ACTIVE REMOTE-TYPE PCI */
  int number, active, remote;
  char pci[TEXT] = "";
  if (sscanf(values, "%d %d %d %95s", &number, &active, &remote, pci) < 3) return;
  if (number < 0 || number >= LINKS) return;
  gpu->link[number] = (Link){.known = 1, .active = active, .remote = remote};
  copy(gpu->link[number].pci, strcmp(pci, "-") ? pci : "");
}

static void read_fabric(Gpu *gpu, const char *values) { /* STATE STATUS CLIQUE HEALTH UUID */
  char uuid[TEXT] = "";
  gpu->has_fabric = sscanf(values, "%u %d %u %u %95s", &gpu->fabric_state, &gpu->fabric_status,
                           &gpu->fabric_clique, &gpu->fabric_health, uuid) == 5;
  for (int byte = 0; byte < 16; byte++) {
    unsigned value = 0;
    sscanf(uuid + 2 * byte, "%2x", &value);
    gpu->fabric_uuid[byte] = (unsigned char)value;
  }
}

static Gpu *new_gpu(void) {
  if (machine.count == GPUS) return NULL;
  Gpu *gpu = &machine.gpu[machine.count];
  gpu->index = machine.count++;
  for (int peer = 0; peer < GPUS; peer++) gpu->p2p[peer] = gpu->level[peer] = NOT_TOLD;
  gpu->ecc_volatile = gpu->ecc_aggregate = gpu->recovery = NOT_TOLD;
  gpu->utilization = gpu->temperature = gpu->power = gpu->pages = NOT_TOLD;
  return gpu;
}

static void read_slice(Gpu *gpu, const char *values) { /* see mig.h */
  Slice *new = &machine.slice[machine.slices];
  int name = 0;
  if (machine.slices == SLICES ||
      sscanf(values, "%u %u %u %u %llu %95s %n", &new->gi, &new->ci, &new->gi_slices,
             &new->ci_slices, &new->mib, new->uuid, &name) < 6)
    return;
  new->gpu = gpu->index;
  copy(new->name, values + name);
  machine.slices++;
}

static void read_gpu_line(Gpu *gpu, const char *key, const char *rest) {
  if (!strcmp(key, "uuid")) copy(gpu->uuid, rest);
  else if (!strcmp(key, "name")) copy(gpu->name, rest);
  else if (!strcmp(key, "serial")) copy(gpu->serial, rest);
  else if (!strcmp(key, "pci")) copy(gpu->pci, rest);
  else if (!strcmp(key, "device_id")) gpu->device_id = (unsigned)strtoul(rest, NULL, 0);
  else if (!strcmp(key, "minor")) gpu->has_minor = sscanf(rest, "%u", &gpu->minor) == 1;
  else if (!strcmp(key, "module")) gpu->has_module = sscanf(rest, "%u", &gpu->module) == 1;
  else if (!strcmp(key, "capability"))
    gpu->has_cc = sscanf(rest, "%u.%u", &gpu->major_cc, &gpu->minor_cc) == 2;
  else if (!strcmp(key, "memory"))
    gpu->has_memory = sscanf(rest, "%llu", &gpu->memory) == 1;
  else if (!strcmp(key, "numa")) gpu->has_numa = sscanf(rest, "%d", &gpu->numa) == 1;
  else if (!strcmp(key, "cpus")) gpu->has_cpus = read_mask(gpu->cpus, rest);
  else if (!strcmp(key, "nodes")) gpu->has_nodes = read_mask(gpu->nodes, rest);
  else if (!strcmp(key, "mig"))
    gpu->has_mig = sscanf(rest, "%u %u", &gpu->mig, &gpu->mig_pending) == 2;
  else if (!strcmp(key, "slice")) read_slice(gpu, rest);
  else if (!strcmp(key, "p2p")) read_row(gpu->p2p, rest);
  else if (!strcmp(key, "levels")) read_row(gpu->level, rest);
  else if (!strcmp(key, "link")) read_link(gpu, rest);
  else if (!strcmp(key, "fabric")) read_fabric(gpu, rest);
  else if (!strcmp(key, "pcie"))
    gpu->has_pcie = sscanf(rest, "%u %u", &gpu->pcie_generation, &gpu->pcie_width) == 2;
  else if (!strcmp(key, "platform"))
    gpu->has_platform = sscanf(rest, "%u %u %u %u %95s", &gpu->slot, &gpu->tray, &gpu->host,
                               &gpu->place, gpu->chassis) == 5;
  else if (!strcmp(key, "lost")) gpu->lost = atoi(rest);
  else if (!strcmp(key, "ecc")) sscanf(rest, "%lld %lld", &gpu->ecc_volatile, &gpu->ecc_aggregate);
  else if (!strcmp(key, "rows"))
    gpu->rows_told = sscanf(rest, "%d %d %d", &gpu->rows[0], &gpu->rows[1], &gpu->rows[2]) == 3;
  else if (!strcmp(key, "pages")) gpu->pages = atoi(rest);
  else if (!strcmp(key, "recovery")) gpu->recovery = atoll(rest);
  else if (!strcmp(key, "clocks")) gpu->clocks = atoll(rest);
  else if (!strcmp(key, "used")) gpu->used = strtoull(rest, NULL, 10);
  else if (!strcmp(key, "utilization")) gpu->utilization = atoll(rest);
  else if (!strcmp(key, "temperature")) gpu->temperature = atoll(rest);
  else if (!strcmp(key, "power")) gpu->power = atoll(rest);
}

static const char *profile_path(char *buffer, size_t size) {
  const char *named = getenv("LOCKSTEP_FAKE_NVML");
  if (named && *named) return named;
  Dl_info self;
  if (!dladdr((void *)profile_path, &self) || !self.dli_fname) return NULL;
  const char *slash = strrchr(self.dli_fname, '/');
  int folder = slash ? (int)(slash - self.dli_fname) : 1;
  snprintf(buffer, size, "%.*s/fake-nvml.profile", folder, slash ? self.dli_fname : ".");
  return buffer;
}

static int is_same(const char *name, struct stat *known) {
  struct stat found;
  if (stat(name, &found)) memset(&found, 0, sizeof found);
  int same = found.st_ino == known->st_ino && found.st_size == known->st_size &&
             found.st_mtim.tv_sec == known->st_mtim.tv_sec &&
             found.st_mtim.tv_nsec == known->st_mtim.tv_nsec;
  *known = found;
  return same;
}

static int read_profile(void) { /* the lock is held */
  static struct stat known;
  char path[4096], line[4096];
  const char *name = profile_path(path, sizeof path);
  FILE *file = name ? fopen(name, "r") : NULL;
  if (!file) return DRIVER_NOT_LOADED; /* a library without a driver */
  if (is_same(name, &known) && machine.count) {
    fclose(file);
    return machine.init_error;
  }
  Machine *next = machines + (now - machines + 1) % TURNS;
  memset(next, 0, sizeof *next);
  now = next;
  Gpu *gpu = NULL;
  while (fgets(line, sizeof line, file)) {
    line[strcspn(line, "\n")] = 0;
    char *rest = strchr(line, ' ');
    if (rest) *rest++ = 0;
    else rest = line + strlen(line);
    if (!strcmp(line, "gpu")) gpu = new_gpu();
    else if (gpu) read_gpu_line(gpu, line, rest);
    else if (!strcmp(line, "init_error")) machine.init_error = atoi(rest);
    else if (!strcmp(line, "driver")) copy(machine.driver, rest);
    else if (!strcmp(line, "nvml")) copy(machine.nvml, rest);
    else if (!strcmp(line, "cuda")) machine.cuda = atoi(rest);
    else if (!strcmp(line, "count")) machine.told = (unsigned)strtoul(rest, NULL, 10);
  }
  fclose(file);
  return machine.init_error;
}

#include "control.h"

/* ---- start of every call ---- */

#define READY() do { if (!initialized) return UNINITIALIZED; \
    int trouble_ = trouble(__func__); if (trouble_) return trouble_; } while (0)
#define USE(gpu) do { READY(); if (!(gpu) || slice_of(gpu)) return INVALID_ARGUMENT; \
    int lost_ = lost(gpu); if (lost_) return lost_; \
    int failing_ = failing(gpu, __func__); if (failing_) return failing_; } while (0)
#define TOLD(condition) do { if (!(condition)) return NOT_SUPPORTED; } while (0)

static int give_text(const char *text, char *to, unsigned size) {
  TOLD(*text);
  if (strlen(text) + 1 > size) return INSUFFICIENT_SIZE;
  strcpy(to, text);
  return SUCCESS;
}

#include "mig.h"

static void give_pci(const char *address, PciInfo *info) {
  unsigned function = 0;
  memset(info, 0, sizeof *info);
  if (!*address) return; /* as in a VM: the remote end is unknown */
  sscanf(address, "%x:%x:%x.%x", &info->domain, &info->bus, &info->device, &function);
  snprintf(info->busIdLegacy, 16, "%04X:%02X:%02X.%X", info->domain & 0xffff, info->bus & 0xff,
           info->device & 0xff, function & 0xf);
  snprintf(info->busId, 32, "%08X:%02X:%02X.%X", info->domain, info->bus & 0xff,
           info->device & 0xff, function & 0xf);
}

static int give_mask(const uint64_t *mask, unsigned size, unsigned long *to) {
  for (unsigned word = 0; word < size; word++) to[word] = word < MASK / WORD ? mask[word] : 0;
  return SUCCESS;
}

/* ---- the library ---- */

int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  int error = trouble(__func__);
  if (error) return error;
  pthread_mutex_lock(&lock);
  error = read_profile();
  if (error == SUCCESS) initialized++;
  pthread_mutex_unlock(&lock);
  return error;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) {
  if (!initialized) return UNINITIALIZED;
  pthread_mutex_lock(&lock);
  initialized--;
  pthread_mutex_unlock(&lock);
  return SUCCESS;
}
const char *nvmlErrorString(int code) {
  switch (code) {
    case SUCCESS: return "Success";
    case NOT_SUPPORTED: return "Not Supported";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    default: return "Error of the fake NVML library";
  }
}
int nvmlSystemGetDriverVersion(char *to, unsigned size) {
  READY();
  return give_text(machine.driver, to, size);
}
int nvmlSystemGetNVMLVersion(char *to, unsigned size) {
  READY();
  return give_text(machine.nvml, to, size);
}
int nvmlSystemGetCudaDriverVersion_v2(int *version) {
  READY();
  TOLD(machine.cuda);
  *version = machine.cuda;
  return SUCCESS;
}

/* ---- enumeration ---- */

int nvmlDeviceGetCount_v2(unsigned *count) {
  READY();
  *count = machine.told ? machine.told : machine.count;
  return SUCCESS;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Gpu **gpu) {
  READY();
  if (index >= machine.count) return INVALID_ARGUMENT;
  *gpu = &machine.gpu[index];
  return lost(*gpu);
}
int nvmlDeviceGetHandleByUUID(const char *uuid, Gpu **gpu) {
  READY();
  for (unsigned index = 0; index < machine.count; index++)
    if (!strcmp(machine.gpu[index].uuid, uuid)) return nvmlDeviceGetHandleByIndex_v2(index, gpu);
  return NOT_FOUND;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char *address, Gpu **gpu) {
  unsigned asked[4] = {0}, known[4];
  READY();
  sscanf(address, "%x:%x:%x.%x", &asked[0], &asked[1], &asked[2], &asked[3]);
  for (unsigned index = 0; index < machine.count; index++) {
    memset(known, 0, sizeof known);
    sscanf(machine.gpu[index].pci, "%x:%x:%x.%x", &known[0], &known[1], &known[2], &known[3]);
    if (!memcmp(asked, known, sizeof asked)) return nvmlDeviceGetHandleByIndex_v2(index, gpu);
  }
  return NOT_FOUND;
}

/* ---- identity and memory ---- */

int nvmlDeviceGetIndex(Gpu *gpu, unsigned *index) {
  USE(gpu);
  *index = gpu->index;
  return SUCCESS;
}
int nvmlDeviceGetUUID(Gpu *gpu, char *to, unsigned size) {
  if (slice_of(gpu)) return slice_text(gpu, 0, to, size);
  USE(gpu);
  return give_text(gpu->uuid, to, size);
}
int nvmlDeviceGetName(Gpu *gpu, char *to, unsigned size) {
  if (slice_of(gpu)) return slice_text(gpu, 1, to, size);
  USE(gpu);
  return give_text(gpu->name, to, size);
}
int nvmlDeviceGetSerial(Gpu *gpu, char *to, unsigned size) {
  USE(gpu);
  return give_text(gpu->serial, to, size);
}
int nvmlDeviceGetMinorNumber(Gpu *gpu, unsigned *minor) {
  USE(gpu);
  TOLD(gpu->has_minor);
  *minor = gpu->minor;
  return SUCCESS;
}
int nvmlDeviceGetModuleId(Gpu *gpu, unsigned *module) {
  USE(gpu);
  TOLD(gpu->has_module);
  *module = gpu->module;
  return SUCCESS;
}
int nvmlDeviceGetCudaComputeCapability(Gpu *gpu, int *major, int *minor) {
  USE(gpu);
  TOLD(gpu->has_cc);
  *major = (int)gpu->major_cc;
  *minor = (int)gpu->minor_cc;
  return SUCCESS;
}
int nvmlDeviceGetPciInfo_v3(Gpu *gpu, PciInfo *info) {
  USE(gpu);
  give_pci(gpu->pci, info);
  info->pciDeviceId = gpu->device_id;
  return SUCCESS;
}
int nvmlDeviceGetMemoryInfo(Gpu *gpu, Memory *memory) {
  if (slice_of(gpu)) return slice_memory(gpu, memory);
  USE(gpu);
  if (!may_monitor(gpu)) return NO_PERMISSION;
  TOLD(gpu->has_memory);
  *memory = (Memory){.total = gpu->memory, .free = gpu->memory - used(gpu), .used = used(gpu)};
  return SUCCESS;
}
int nvmlDeviceGetMemoryInfo_v2(Gpu *gpu, MemoryV2 *memory) {
  USE(gpu);
  if (!may_monitor(gpu)) return NO_PERMISSION;
  TOLD(gpu->has_memory);
  if (memory->version != MEMORY_V2) return ARGUMENT_VERSION_MISMATCH;
  memory->total = gpu->memory;
  memory->used = used(gpu);
  memory->free = gpu->memory - memory->used;
  memory->reserved = 0;
  return SUCCESS;
}
typedef struct { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; } Process;
int nvmlDeviceGetComputeRunningProcesses_v3(Gpu *gpu, unsigned *count, Process *found) {
  int pid = 0, mib = 0, there = processes(gpu, -1, &pid, &mib);
  USE(gpu);
  if (*count < (unsigned)there) {
    *count = (unsigned)there;
    return INSUFFICIENT_SIZE;
  }
  *count = (unsigned)there;
  for (int place = 0; place < there; place++) {
    processes(gpu, place, &pid, &mib);
    found[place] = (Process){(unsigned)pid, (unsigned long long)mib << 20, ~0u, ~0u};
  }
  return SUCCESS;
}

typedef struct { unsigned pid; unsigned long long time; unsigned sm, memory, enc, dec; } Sample;
int nvmlDeviceGetProcessUtilization(Gpu *gpu, Sample *found, unsigned *count, unsigned long long since) {
  int pid = 0, mib = 0, there = processes(gpu, -1, &pid, &mib);
  USE(gpu);
  if (!there) return NOT_FOUND;
  if (!found || *count < (unsigned)there) {
    *count = (unsigned)there;
    return INSUFFICIENT_SIZE;
  }
  *count = (unsigned)there;
  for (int place = 0; place < there; place++) {
    int busy = 0;
    processes(gpu, place, &pid, &mib);
    controlled(gpu, "busy", pid, &busy);
    found[place] = (Sample){(unsigned)pid, since + 1, (unsigned)busy, 0, 0, 0};
  }
  return SUCCESS;
}

/* ---- location ---- */

int nvmlDeviceGetTopologyCommonAncestor(Gpu *a, Gpu *b, int *level) {
  USE(a);
  USE(b);
  if (a == b) {
    *level = LEVEL_INTERNAL;
    return SUCCESS;
  }
  TOLD(a->level[b->index] != NOT_TOLD);
  *level = a->level[b->index];
  return SUCCESS;
}
int nvmlDeviceGetP2PStatus(Gpu *a, Gpu *b, int which, int *status) {
  USE(a);
  USE(b);
  if (a == b || which < 0 || which > 4) return INVALID_ARGUMENT;
  TOLD(which == P2P_NVLINK && a->p2p[b->index] != NOT_TOLD);
  *status = a->p2p[b->index];
  return SUCCESS;
}
int nvmlDeviceGetCpuAffinityWithinScope(Gpu *gpu, unsigned size, unsigned long *to, int scope) {
  USE(gpu);
  (void)scope;
  TOLD(gpu->has_cpus);
  return give_mask(gpu->cpus, size, to);
}
int nvmlDeviceGetCpuAffinity(Gpu *gpu, unsigned size, unsigned long *to) {
  return nvmlDeviceGetCpuAffinityWithinScope(gpu, size, to, 0);
}
int nvmlDeviceGetMemoryAffinity(Gpu *gpu, unsigned size, unsigned long *to, int scope) {
  USE(gpu);
  (void)scope;
  TOLD(gpu->has_nodes);
  return give_mask(gpu->nodes, size, to);
}
int nvmlDeviceGetNumaNodeId(Gpu *gpu, int *node) {
  USE(gpu);
  TOLD(gpu->has_numa);
  *node = gpu->numa;
  return SUCCESS;
}

int nvmlDeviceGetMaxPcieLinkGeneration(Gpu *gpu, unsigned *generation) {
  USE(gpu);
  TOLD(gpu->has_pcie);
  *generation = gpu->pcie_generation;
  return SUCCESS;
}
int nvmlDeviceGetMaxPcieLinkWidth(Gpu *gpu, unsigned *width) {
  USE(gpu);
  TOLD(gpu->has_pcie);
  *width = gpu->pcie_width;
  return SUCCESS;
}

typedef struct {
  unsigned version;
  unsigned char ibGuid[16];
  char chassisSerialNumber[16];
  unsigned char slotNumber, trayIndex, hostId, peerType, moduleId;
} PlatformInfo;
_Static_assert(sizeof(PlatformInfo) == 44, "nvmlPlatformInfo_v2_t");
int nvmlDeviceGetPlatformInfo(Gpu *gpu, PlatformInfo *info) {
  USE(gpu);
  if (info->version != 0x0200002C) return ARGUMENT_VERSION_MISMATCH;
  TOLD(gpu->has_platform);
  memset(info->ibGuid, 0xA5, sizeof info->ibGuid);
  strncpy(info->chassisSerialNumber, gpu->chassis, sizeof info->chassisSerialNumber);
  info->slotNumber = (unsigned char)gpu->slot;
  info->trayIndex = (unsigned char)gpu->tray;
  info->hostId = (unsigned char)gpu->host;
  info->peerType = 1;
  info->moduleId = (unsigned char)gpu->place;
  return SUCCESS;
}

/* ---- NVLink and its fabric ---- */

static int link_of(Gpu *gpu, unsigned number, int active, Link **link, const char *call) {
  if (!initialized) return UNINITIALIZED;
  if (!gpu || slice_of(gpu)) return INVALID_ARGUMENT;
  int error = trouble(call);
  if (!error) error = lost(gpu);
  if (!error) error = failing(gpu, call);
  if (error) return error;
  unsigned last = LINKS;
  while (last && !gpu->link[last - 1].known) last--;
  TOLD(last); /* a GPU without NVLink */
  if (number >= last) return INVALID_ARGUMENT;
  static _Thread_local Link told;
  told = gpu->link[number];
  *link = &told;
  int set = -1;
  controlled(gpu, "link", (int)number, &set);
  if (set >= 0) told.active = set;
  TOLD(told.known && (!active || told.active));
  return SUCCESS;
}
int nvmlDeviceGetNvLinkState(Gpu *gpu, unsigned number, unsigned *active) {
  Link *link;
  int error = link_of(gpu, number, 0, &link, __func__);
  if (!error) *active = (unsigned)link->active;
  return error;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(Gpu *gpu, unsigned number, unsigned *type) {
  Link *link;
  int error = link_of(gpu, number, 1, &link, __func__);
  if (!error) *type = (unsigned)link->remote;
  return error;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(Gpu *gpu, unsigned number, PciInfo *info) {
  Link *link;
  int error = link_of(gpu, number, 1, &link, __func__);
  if (!error) give_pci(link->pci, info);
  return error;
}
int nvmlDeviceGetFieldValues(Gpu *gpu, int count, FieldValue *values) {
  USE(gpu);
  for (int place = 0; place < count; place++) {
    Link *link;
    values[place].nvmlReturn = NOT_SUPPORTED;
    if (values[place].fieldId == RECOVERY_FIELD) {
      long long action = number_of(gpu, "recovery", gpu->recovery);
      values[place].valueType = 1; /* unsigned int */
      values[place].value.u = (unsigned)action;
      if (action >= 0) values[place].nvmlReturn = SUCCESS;
      continue;
    }
    if (values[place].fieldId != LINK_STATE_FIELD) continue;
    values[place].nvmlReturn = link_of(gpu, values[place].scopeId, 0, &link, __func__);
    values[place].valueType = 1; /* unsigned int */
    if (!values[place].nvmlReturn) values[place].value.u = (unsigned)link->active;
  }
  return SUCCESS;
}
int nvmlDeviceGetGpuFabricInfoV(Gpu *gpu, FabricInfoV *info) {
  USE(gpu);
  TOLD(gpu->has_fabric);
  if (info->version != FABRIC_V2 && info->version != FABRIC_V3) return ARGUMENT_VERSION_MISMATCH;
  memcpy(info->clusterUuid, gpu->fabric_uuid, sizeof info->clusterUuid);
  info->status = gpu->fabric_status;
  info->cliqueId = gpu->fabric_clique;
  info->state = (unsigned char)gpu->fabric_state;
  info->healthMask = 0;
  if (info->version == FABRIC_V3)
    info->healthSummary = (unsigned char)number_of(gpu, "fabric_health", gpu->fabric_health);
  return SUCCESS;
}

/* ---- errors and usage ---- */

int nvmlDeviceGetTotalEccErrors(Gpu *gpu, int kind, int counter, unsigned long long *count) {
  USE(gpu);
  if (kind != 1 || counter < 0 || counter > 1) return INVALID_ARGUMENT;
  long long told = counter ? number_of(gpu, "ecc_aggregate", gpu->ecc_aggregate)
                           : number_of(gpu, "ecc", gpu->ecc_volatile);
  TOLD(told >= 0);
  *count = (unsigned long long)told;
  return SUCCESS;
}
int nvmlDeviceGetRemappedRows(Gpu *gpu, unsigned *corrected, unsigned *uncorrected,
                              unsigned *pending, unsigned *failed) {
  USE(gpu);
  long long waiting = number_of(gpu, "rows_pending", gpu->rows_told ? gpu->rows[1] : NOT_TOLD);
  long long broken = number_of(gpu, "rows_failed", gpu->rows_told ? gpu->rows[2] : NOT_TOLD);
  TOLD(waiting >= 0 || broken >= 0);
  *corrected = 0;
  *uncorrected = (unsigned)gpu->rows[0];
  *pending = waiting > 0;
  *failed = broken > 0;
  return SUCCESS;
}
int nvmlDeviceGetRetiredPagesPendingStatus(Gpu *gpu, int *pending) {
  USE(gpu);
  long long told = number_of(gpu, "pages", gpu->pages);
  TOLD(told >= 0);
  *pending = told > 0;
  return SUCCESS;
}
int nvmlDeviceGetNvLinkErrorCounter(Gpu *gpu, unsigned number, int kind, unsigned long long *count) {
  Link *link;
  int error = link_of(gpu, number, 1, &link, __func__);
  if (error) return error;
  int told = 0;
  controlled(gpu, "link_errors", (int)number, &told);
  *count = kind == 0 ? (unsigned long long)told : 0;
  return SUCCESS;
}
typedef struct { unsigned gpu, memory; } Utilization;
int nvmlDeviceGetUtilizationRates(Gpu *gpu, Utilization *rates) {
  USE(gpu);
  long long told = number_of(gpu, "utilization", gpu->utilization);
  TOLD(told >= 0);
  *rates = (Utilization){(unsigned)told, (unsigned)told};
  return SUCCESS;
}
int nvmlDeviceGetTemperature(Gpu *gpu, int sensor, unsigned *degrees) {
  USE(gpu);
  long long told = number_of(gpu, "temperature", gpu->temperature);
  TOLD(told >= 0 && sensor == 0);
  *degrees = (unsigned)told;
  return SUCCESS;
}
int nvmlDeviceGetPowerUsage(Gpu *gpu, unsigned *milliwatts) {
  USE(gpu);
  long long told = number_of(gpu, "power", gpu->power);
  TOLD(told >= 0);
  *milliwatts = (unsigned)told;
  return SUCCESS;
}

int nvmlDeviceGetCurrentClocksEventReasons(Gpu *gpu, unsigned long long *reasons) {
  USE(gpu);
  *reasons = (unsigned long long)number_of(gpu, "clocks", gpu->clocks);
  return SUCCESS;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(Gpu *gpu, unsigned long long *reasons) {
  return nvmlDeviceGetCurrentClocksEventReasons(gpu, reasons);
}

/* ---- settings ---- */

#include "limits.h"

/* ---- events ---- */

typedef struct {
  Gpu *gpu;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
} Event;
typedef struct { uint64_t registered; int told, news; } EventSet;
enum { XID_EVENT = 8, DOUBLE_BIT_EVENT = 2, STEP_MS = 1000, BLIND_MS = 50 };

int nvmlEventSetCreate(EventSet **set) {
  READY();
  *set = calloc(1, sizeof **set);
  (*set)->news = control_news();
  (*set)->told = xids(-1, NULL);
  return SUCCESS;
}
int nvmlDeviceGetSupportedEventTypes(Gpu *gpu, unsigned long long *types) {
  USE(gpu);
  TOLD(number_of(gpu, "events", 1));
  *types = XID_EVENT | DOUBLE_BIT_EVENT;
  return SUCCESS;
}
int nvmlDeviceRegisterEvents(Gpu *gpu, unsigned long long types, EventSet *set) {
  USE(gpu);
  if (types & ~(unsigned long long)(XID_EVENT | DOUBLE_BIT_EVENT)) return NOT_SUPPORTED;
  TOLD(number_of(gpu, "events", 1));
  set->registered |= 1ull << gpu->index;
  return SUCCESS;
}
int nvmlEventSetWait_v2(EventSet *set, Event *event, unsigned milliseconds) {
  struct timespec time, began;
  clock_gettime(CLOCK_MONOTONIC, &began);
  for (long left = milliseconds; left >= 0;) {
    READY();
    int all = xids(-1, NULL);
    if (set->told > all) set->told = all; /* the file was truncated */
    while (set->told < all) {
      Order xid;
      xids(set->told++, &xid);
      if (xid.index < 0 || xid.index >= (int)machine.count || !(set->registered >> xid.index & 1))
        continue;
      *event = (Event){&machine.gpu[xid.index], XID_EVENT, (unsigned)xid.first,
                       xid.told > 3 ? (unsigned)xid.second : ~0u,
                       xid.told > 4 ? (unsigned)xid.third : ~0u};
      return SUCCESS;
    }
    /* a driver wakes its waiters; so does the file's folder */
    struct pollfd news = {set->news, POLLIN, 0};
    long step = set->news < 0 ? BLIND_MS : STEP_MS;
    if (left) poll(&news, 1, (int)(left < step ? left : step));
    char seen[4096];
    if (news.revents) while (read(set->news, seen, sizeof seen) > 0) {}
    clock_gettime(CLOCK_MONOTONIC, &time);
    long gone = (time.tv_sec - began.tv_sec) * 1000 + (time.tv_nsec - began.tv_nsec) / 1000000;
    if (!left) break;
    left = gone >= (long)milliseconds ? 0 : (long)milliseconds - gone;
  }
  return TIMEOUT;
}
int nvmlEventSetFree(EventSet *set) {
  if (set->news >= 0) close(set->news);
  free(set);
  return SUCCESS;
}

_Static_assert(sizeof(Event) == 32, "nvmlEventData_t");
_Static_assert(sizeof(PciInfo) == 68, "nvmlPciInfo_t");
_Static_assert(sizeof(MemoryV2) == 40, "nvmlMemory_v2_t");
_Static_assert(sizeof(FabricInfoV) == 40, "nvmlGpuFabricInfo_v3_t");
