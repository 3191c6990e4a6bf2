/* The calls of libcuda.so.1 that agent/preflight/gpu_copies.py makes, on host memory. The file named by LOCKSTEP_FAKE_CUDA
 * has one fault a line, with GPUs as minor numbers N of the UUIDs "GPU-000N...":
 *
 *   init CODE       cuInit fails          missing N       the list of GPUs ends before it
 *   retain N CODE   no context on it      copy A B CODE   a copy from A to B fails
 *   corrupt A B     it brings other bytes hang A B        it never ends
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST 32

static int numbers[MOST], count = -1;
static uintptr_t current;

/* The fault with this name and these GPUs (-1: any); its code, or 1 without one; 0 if there is none. */
static int fault(const char *name, int a, int b)
{
    char line[128], word[32];
    int found = 0;
    const char *path = getenv("LOCKSTEP_FAKE_CUDA");
    FILE *file = path ? fopen(path, "r") : NULL;
    while (file && fgets(line, sizeof line, file)) {
        int n[3] = {-1, -1, -1}, fields = sscanf(line, "%31s %d %d %d", word, &n[0], &n[1], &n[2]), used = (a >= 0) + (b >= 0);
        if (fields < 1 || strcmp(word, name) || (a >= 0 && n[0] != a) || (b >= 0 && n[1] != b))
            continue;
        found = fields > 1 + used ? n[used] : 1;
    }
    if (file)
        fclose(file);
    return found;
}

int cuInit(unsigned flags)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    char *copy = strdup(visible ? visible : ""), *left = copy, *each;
    (void)flags;
    count = 0;
    while ((each = strsep(&left, ",")) && *each && count < MOST) {
        int number = atoi(each + strlen("GPU-"));
        if (fault("missing", number, -1))
            break;
        numbers[count++] = number;
    }
    free(copy);
    return fault("init", -1, -1);
}

int cuGetErrorName(int code, const char **name)
{
    static char text[32];
    snprintf(text, sizeof text, "CUDA_ERROR_%d", code);
    *name = text;
    return 0;
}

int cuDeviceGetCount(int *found) { *found = count; return count < 0 ? 3 : 0; }
int cuDeviceGet(int *device, int index) { *device = index; return index < count ? 0 : 101; }
int cuCtxSynchronize(void) { return 0; }
int cuCtxSetCurrent(uintptr_t context) { current = context; return 0; }

int cuDevicePrimaryCtxRetain(uintptr_t *context, int device)
{
    *context = (uintptr_t)device + 1;
    return fault("retain", numbers[device], -1);
}

int cuMemAlloc_v2(uint64_t *pointer, size_t bytes)
{
    *pointer = (uint64_t)(uintptr_t)malloc(bytes);
    return current && *pointer ? 0 : 2;
}

int cuMemsetD32_v2(uint64_t pointer, unsigned value, size_t words)
{
    uint32_t *at = (uint32_t *)(uintptr_t)pointer;
    for (size_t i = 0; i < words; i++)
        at[i] = value;
    return 0;
}

int cuMemcpyPeer(uint64_t to, uintptr_t to_context, uint64_t from, uintptr_t from_context, size_t bytes)
{
    int a = numbers[from_context - 1], b = numbers[to_context - 1];
    while (fault("hang", a, b))
        usleep(10000);
    memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes);
    if (fault("corrupt", a, b))
        ((char *)(uintptr_t)to)[bytes - 1] ^= 1;
    return fault("copy", a, b);
}

int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes)
{
    memcpy(to, (void *)(uintptr_t)from, bytes);
    return 0;
}
