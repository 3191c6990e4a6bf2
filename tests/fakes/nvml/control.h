/* Events of the running fake machine. A line of the control file is one of
 *
 *   KEY GPU VALUE        a value from now on; the last line of a key and GPU counts:
 *                        lost (an NVML error, 0: none), ecc, ecc_aggregate, rows_pending, rows_failed, pages,
 *                        recovery, used (bytes), utilization, temperature, power, events (0: not supported),
 *                        clocks (NVML's reasons for lower clocks), fabric_health,
 *                        mig_monitor (0: the caller lacks the MIG monitor capability),
 *                        admin (0: the caller lacks CAP_SYS_ADMIN), limit_used (bytes; see limits.h)
 *   KEY GPU LINK VALUE   link (0: down, 1: up), link_errors
 *   slice_used GPU GI MIB  memory in use of the slice of this GPU instance
 *   process GPU PID MIB  a compute process and its memory
 *   busy GPU PID PERCENT  how busy it keeps the GPU
 *   xid GPU CODE [GI CI] an event, delivered once: lines are appended
 *   hang CALL MS         the call takes MS milliseconds
 *   fail CALL ERROR [GPU]  the call returns this NVML error, for one GPU or for all
 *   erring GPU ERROR     every call but those that identify the GPU returns this NVML error
 *
 * GPU is an index of the profile. Calls that an older driver lacks: see build(hide=...). */

typedef struct { char key[96]; int index, first, second, third, told; long long value; } Order;
enum { ORDERS = 512 };
static Order order[ORDERS];
static int order_count;
static pthread_mutex_t control_lock = PTHREAD_MUTEX_INITIALIZER;

static const char *control_path(char *buffer, size_t size) {
  char profile[4096];
  const char *name = getenv("LOCKSTEP_FAKE_NVML_CONTROL");
  if (name && *name) return name;
  const char *beside = profile_path(profile, sizeof profile);
  const char *slash = beside ? strrchr(beside, '/') : NULL;
  snprintf(buffer, size, "%.*s/fake-nvml.control", slash ? (int)(slash - beside) : 1,
           slash ? beside : ".");
  return buffer;
}

/* A watch on the folder of the control file; -1: the kernel has none left. */
static int control_news(void) {
  char path[4200], folder[4200] = ".";
  const char *name = control_path(path, sizeof path), *slash = strrchr(name, '/');
  if (slash) snprintf(folder, sizeof folder, "%.*s", (int)(slash - name), name);
  int news = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  if (news >= 0) inotify_add_watch(news, folder, IN_MODIFY | IN_CREATE | IN_MOVED_TO | IN_DELETE);
  return news;
}

static void read_orders(void) { /* under control_lock */
  static struct stat known;
  char path[4200], line[256];
  const char *name = control_path(path, sizeof path);
  if (is_same(name, &known)) return;
  order_count = 0;
  FILE *file = fopen(name, "r");
  while (file && order_count < ORDERS && fgets(line, sizeof line, file)) {
    Order *new = &order[order_count];
    char who[40] = "";
    new->second = 0;
    new->told = sscanf(line, "%39s %39s %lld %d %d", new->key, who, &new->value, &new->second,
                       &new->third);
    if (new->told < 3) continue;
    if (!strncmp(who, "nvml", 4)) { /* a call's name instead of a GPU's index */
      strcat(new->key, " ");
      strcat(new->key, who);
    }
    new->index = atoi(who);
    new->first = (int)new->value;
    order_count++;
  }
  if (file) fclose(file);
}

/* The number of xid lines, and the n-th of them if requested. */
static int xids(int wanted, Order *found) {
  int count = 0;
  pthread_mutex_lock(&control_lock);
  read_orders();
  for (int place = 0; place < order_count; place++) {
    if (strcmp(order[place].key, "xid")) continue;
    if (count == wanted) *found = order[place];
    count++;
  }
  pthread_mutex_unlock(&control_lock);
  return count;
}

/* The number of processes of the GPU, and the n-th of them if requested. */
static int processes(Gpu *gpu, int wanted, int *pid, int *mib) {
  int count = 0;
  pthread_mutex_lock(&control_lock);
  read_orders();
  for (int place = 0; place < order_count; place++) {
    if (strcmp(order[place].key, "process") || order[place].index != (int)gpu->index) continue;
    if (count == wanted) {
      *pid = order[place].first;
      *mib = order[place].second;
    }
    count++;
  }
  pthread_mutex_unlock(&control_lock);
  return count;
}

static long long number_of(Gpu *gpu, const char *key, long long otherwise) {
  pthread_mutex_lock(&control_lock);
  read_orders();
  for (int place = 0; place < order_count; place++)
    if (!strcmp(order[place].key, key) && order[place].index == (int)gpu->index)
      otherwise = order[place].value;
  pthread_mutex_unlock(&control_lock);
  return otherwise;
}

static void controlled(Gpu *gpu, const char *key, int first, int *value) {
  pthread_mutex_lock(&control_lock);
  read_orders();
  for (int place = 0; place < order_count; place++)
    if (!strcmp(order[place].key, key) && order[place].index == (int)gpu->index &&
        order[place].first == first)
      *value = order[place].second;
  pthread_mutex_unlock(&control_lock);
}

static int lost(Gpu *gpu) { return (int)number_of(gpu, "lost", gpu->lost); }

static unsigned long long used(Gpu *gpu) {
  return (unsigned long long)number_of(gpu, "used", gpu->used);
}

/* Of the calls of one GPU: the last line for it counts. */
static int failing(Gpu *gpu, const char *call) {
  static const char *identity = " nvmlDeviceGetUUID nvmlDeviceGetPciInfo_v3 nvmlDeviceGetMinorNumber ";
  long long error = 0;
  char fail[96], name[96];
  snprintf(fail, sizeof fail, "fail %s", call);
  snprintf(name, sizeof name, " %s ", call);
  pthread_mutex_lock(&control_lock);
  read_orders();
  for (int place = 0; place < order_count; place++) {
    Order *each = &order[place];
    if (each->told > 3 && each->second == (int)gpu->index && !strcmp(each->key, fail)) error = each->value;
    if (each->index == (int)gpu->index && !strcmp(each->key, "erring") && !strstr(identity, name)) error = each->value;
  }
  pthread_mutex_unlock(&control_lock);
  return (int)error;
}

static int trouble(const char *call) {
  long long wait = 0, error = 0;
  char hang[96], fail[96];
  snprintf(hang, sizeof hang, "hang %s", call);
  snprintf(fail, sizeof fail, "fail %s", call);
  pthread_mutex_lock(&control_lock);
  read_orders();
  for (int place = 0; place < order_count; place++) {
    if (!strcmp(order[place].key, hang)) wait = order[place].value;
    if (!strcmp(order[place].key, fail) && order[place].told < 4) error = order[place].value;
  }
  pthread_mutex_unlock(&control_lock);
  if (wait) nanosleep(&(struct timespec){wait / 1000, wait % 1000 * 1000000}, NULL);
  return (int)error;
}
