/* MIG: a few calls accept a slice's handle instead of a GPU's. The profile has one line per slice,
 *
 *   slice GI CI GI-SLICES CI-SLICES MIB UUID NAME
 *
 * after the lines of its GPU; "mig CURRENT PENDING" is the GPU's mode. */

static Slice *slice_of(void *handle) {
  for (int turn = 0; turn < TURNS; turn++) {
    Slice *all = machines[turn].slice;
    if ((char *)handle >= (char *)all && (char *)handle < (char *)(all + SLICES)) return handle;
  }
  return NULL;
}

static Gpu *parent_of(Slice *slice) { return &machine.gpu[slice->gpu]; }

/* Rights to the MIG monitor capability, see control.h. Without, a process reads neither the slices
 * nor the memory of a GPU in MIG mode. */
static int may_monitor(Gpu *gpu) { return !gpu->mig || number_of(gpu, "mig_monitor", 1); }

static int slice_used(Slice *slice) { /* MiB */
  int used = 0;
  controlled(parent_of(slice), "slice_used", (int)slice->gi, &used);
  return used;
}

#define USE_SLICE(handle) Slice *slice = slice_of(handle); READY(); \
    if (!slice) return INVALID_ARGUMENT; \
    int lost_ = lost(parent_of(slice)); if (lost_) return lost_; \
    int failing_ = failing(parent_of(slice), __func__); if (failing_) return failing_

static int slice_text(void *handle, int name, char *to, unsigned size) {
  USE_SLICE(handle);
  return give_text(name ? slice->name : slice->uuid, to, size);
}
static int slice_memory(void *handle, Memory *memory) {
  USE_SLICE(handle);
  unsigned long long total = slice->mib << 20, used = (unsigned long long)slice_used(slice) << 20;
  *memory = (Memory){.total = total, .free = total - used, .used = used};
  return SUCCESS;
}

int nvmlDeviceGetMigMode(Gpu *gpu, unsigned *current, unsigned *pending) {
  USE(gpu);
  TOLD(gpu->has_mig);
  *current = gpu->mig;
  *pending = gpu->mig_pending;
  return SUCCESS;
}
int nvmlDeviceGetMaxMigDeviceCount(Gpu *gpu, unsigned *count) {
  USE(gpu);
  *count = gpu->has_mig ? MIG_MOST : 0;
  return SUCCESS;
}
int nvmlDeviceGetMigDeviceHandleByIndex(Gpu *gpu, unsigned index, void **handle) {
  unsigned place = 0;
  USE(gpu);
  if (index >= MIG_MOST) return INVALID_ARGUMENT;
  if (!may_monitor(gpu)) return NO_PERMISSION;
  for (unsigned each = 0; gpu->mig && each < machine.slices; each++) {
    if (machine.slice[each].gpu != gpu->index) continue;
    if (place++ != index) continue;
    *handle = &machine.slice[each];
    return SUCCESS;
  }
  return NOT_FOUND;
}
int nvmlDeviceIsMigDeviceHandle(void *handle, unsigned *is) {
  READY();
  *is = slice_of(handle) != NULL;
  return SUCCESS;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *handle, Gpu **gpu) {
  USE_SLICE(handle);
  *gpu = parent_of(slice);
  return SUCCESS;
}
int nvmlDeviceGetGpuInstanceId(void *handle, unsigned *id) {
  USE_SLICE(handle);
  *id = slice->gi;
  return SUCCESS;
}
int nvmlDeviceGetComputeInstanceId(void *handle, unsigned *id) {
  USE_SLICE(handle);
  *id = slice->ci;
  return SUCCESS;
}
typedef struct {
  unsigned multiprocessors, copy, decoders, encoders, jpeg, ofa, gi_slices, ci_slices;
  unsigned long long mib;
} Attributes;
int nvmlDeviceGetAttributes_v2(void *handle, Attributes *has) {
  USE_SLICE(handle);
  *has = (Attributes){.multiprocessors = 14 * slice->ci_slices,
                      .copy = slice->gi_slices,
                      .gi_slices = slice->gi_slices,
                      .ci_slices = slice->ci_slices,
                      .mib = slice->mib};
  return SUCCESS;
}

_Static_assert(sizeof(Attributes) == 40, "nvmlDeviceAttributes_t");
