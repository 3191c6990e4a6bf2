/* Settings of a GPU that outlive the process that sets them: its compute mode, and memory limits by
 * cgroup. Both are lines of a file beside the control file, or in /tmp where that can't be written:
 *
 *   mode GPU MODE                      0: default, 3: exclusive process
 *   limit GPU INODE SOFT HARD FOLDER   a limit ends with its folder, as with a cgroup
 *
 * The control file simulates a process without CAP_SYS_ADMIN ("admin GPU 0") and the memory that a cgroup
 * uses ("limit_used GPU BYTES"). */

enum { NO_LIMIT_SET = 0 };
typedef struct { const char *name_space; unsigned long long soft, hard; } SetLimits;
typedef struct { const char *name_space; unsigned long long soft, hard, used; } GetLimits;
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;

static const char *kept_path(char *buffer, size_t size) {
  char path[4200];
  const char *name = control_path(path, sizeof path);
  snprintf(buffer, size, "%s.kept", name);
  const char *slash = strrchr(path, '/');
  if (slash) path[slash - path] = 0;
  if (name == path && access(path, W_OK)) snprintf(buffer, size, "/tmp/fake-nvml.control.kept");
  return buffer;
}

/* The rest of the last line with this prefix; NULL: none. */
static char *kept(const char *beginning, char *line, size_t size) {
  char path[4300], found[5000] = "";
  FILE *file = fopen(kept_path(path, sizeof path), "r");
  while (file && fgets(line, (int)size, file))
    if (!strncmp(line, beginning, strlen(beginning)))
      snprintf(found, sizeof found, "%s", line + strlen(beginning));
  if (file) fclose(file);
  snprintf(line, size, "%s", found);
  line[strcspn(line, "\n")] = 0;
  return *line ? line : NULL;
}

static void keep(const char *beginning, const char *rest) {
  char path[4300];
  FILE *file = fopen(kept_path(path, sizeof path), "a");
  if (!file) return;
  fprintf(file, "%s%s\n", beginning, rest);
  fclose(file);
}

#define ADMIN(gpu) do { if (!number_of(gpu, "admin", 1)) return NO_PERMISSION; } while (0)

int nvmlDeviceGetComputeMode(Gpu *gpu, int *mode) {
  char line[5000], beginning[64];
  USE(gpu);
  snprintf(beginning, sizeof beginning, "mode %u ", gpu->index);
  pthread_mutex_lock(&kept_lock);
  char *found = kept(beginning, line, sizeof line);
  pthread_mutex_unlock(&kept_lock);
  *mode = found ? atoi(found) : 0;
  return SUCCESS;
}
int nvmlDeviceSetComputeMode(Gpu *gpu, int mode) {
  char beginning[64], rest[16];
  USE(gpu);
  ADMIN(gpu);
  if (mode < 0 || mode > 3) return INVALID_ARGUMENT;
  snprintf(beginning, sizeof beginning, "mode %u ", gpu->index);
  snprintf(rest, sizeof rest, "%d", mode);
  pthread_mutex_lock(&kept_lock);
  keep(beginning, rest);
  pthread_mutex_unlock(&kept_lock);
  return SUCCESS;
}

/* A cgroup of version 2 has this file. */
static int is_cgroup(const char *folder, struct stat *found) {
  char path[4300];
  snprintf(path, sizeof path, "%s/cgroup.controllers", folder ? folder : "");
  return folder && *folder == '/' && !stat(folder, found) && S_ISDIR(found->st_mode) && !access(path, F_OK);
}

int nvmlDeviceGetMemoryLimits_v1(Gpu *gpu, GetLimits *limits) {
  char line[5000], beginning[64];
  struct stat folder;
  USE(gpu);
  TOLD(!(gpu->has_mig && gpu->mig));
  if (!is_cgroup(limits->name_space, &folder)) return INVALID_ARGUMENT;
  limits->soft = NO_LIMIT_SET;
  limits->hard = ~0ull;
  limits->used = (unsigned long long)number_of(gpu, "limit_used", 0);
  snprintf(beginning, sizeof beginning, "limit %u %llu ", gpu->index, (unsigned long long)folder.st_ino);
  unsigned long long soft, hard;
  pthread_mutex_lock(&kept_lock);
  char *found = kept(beginning, line, sizeof line);
  pthread_mutex_unlock(&kept_lock);
  if (found && sscanf(found, "%llu %llu", &soft, &hard) == 2) {
    limits->soft = soft;
    limits->hard = hard;
  }
  return SUCCESS;
}
int nvmlDeviceSetMemoryLimits_v1(Gpu *gpu, const SetLimits *limits) {
  char beginning[64], rest[4400];
  struct stat folder;
  USE(gpu);
  TOLD(!(gpu->has_mig && gpu->mig));
  ADMIN(gpu);
  if (!is_cgroup(limits->name_space, &folder) || limits->soft > limits->hard) return INVALID_ARGUMENT;
  snprintf(beginning, sizeof beginning, "limit %u %llu ", gpu->index, (unsigned long long)folder.st_ino);
  snprintf(rest, sizeof rest, "%llu %llu %s", limits->soft, limits->hard, limits->name_space);
  pthread_mutex_lock(&kept_lock);
  keep(beginning, rest);
  pthread_mutex_unlock(&kept_lock);
  return SUCCESS;
}

_Static_assert(sizeof(SetLimits) == 24, "nvmlSetMemoryLimits_v1_t");
_Static_assert(sizeof(GetLimits) == 32, "nvmlGetMemoryLimits_v1_t");
