/* A bad machine for one process, by LD_PRELOAD: a clock that is wrong, and a power cut to come.

   Clock: CHAOS_CLOCK names a file with one int64, nanoseconds added to the wall clock at once
   whenever it changes. The monotonic clock stays as it is.

   Address: connections to this machine come from CHAOS_ADDRESS, so that a proxy knows who dials.

   Power: below CHAOS_ROOT, what has not been synced is remembered in CHAOS_UNSYNCED, so that
   power.py can take it away once the process is dead:
     <inode>.pre   int64 synced size, int64 length of what follows, then records of
                   int64 offset, int64 length, bytes: what lay below the synced size and was
                   overwritten or cut off since the last fsync of the file
     names         lines of files created (C path), renamed (R from, to, grave) and unlinked
                   (U path, grave) since the last fsync of their folder
     grave-<n>     a link to what such a line replaced or removed
   Bytes beyond the synced size need no record: they go by cutting the file.

   Faults: CHAOS_DIE_AT=<n> kills the process before its n-th write, sync, rename or unlink below
   the root; CHAOS_FAIL_SYNC=<n> lets its n-th fsync there, and all that follow, fail with EIO.  */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define REAL(name, type) ({ static __typeof__(type) f; if (!f) f = (__typeof__(type))dlsym(RTLD_NEXT, name); f; })
#define GIGA 1000000000LL

/* ---- the wall clock ---------------------------------------------------------------------- */

static volatile int64_t none = 0, *shift = NULL;

static int64_t off(void) {
    if (!shift) {
        const char *path = getenv("CHAOS_CLOCK");
        int fd = path ? REAL("open", int (*)(const char *, int, ...))(path, O_RDONLY) : -1;
        void *page = fd < 0 ? MAP_FAILED : mmap(NULL, 8, PROT_READ, MAP_SHARED, fd, 0);
        shift = page == MAP_FAILED ? &none : (volatile int64_t *)page;
    }
    return *shift;
}

static void add(struct timespec *t, int64_t by) {
    int64_t all = t->tv_sec * GIGA + t->tv_nsec + by;
    t->tv_sec = all / GIGA;
    t->tv_nsec = all % GIGA;
}

int clock_gettime(clockid_t id, struct timespec *t) {
    int r = REAL("clock_gettime", int (*)(clockid_t, struct timespec *))(id, t);
    if (!r && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) add(t, off());
    return r;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    t->tv_sec = now.tv_sec;
    t->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *t) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (t) *t = now.tv_sec;
    return now.tv_sec;
}

/* Times given to the kernel must be its own. Those of the monotonic clock are small numbers. */
static struct timespec given(const struct timespec *t) {
    struct timespec own = *t;
    if (own.tv_sec > 1000000000) add(&own, -off());
    return own;
}

int pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *t) {
    typedef int (*wait_t)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    static wait_t real;
    /* The oldest of two versions is what dlsym would find on x86. */
    if (!real) real = (wait_t)dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (!real) real = (wait_t)dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    struct timespec own = given(t);
    return real(c, m, &own);
}

int sem_timedwait(sem_t *s, const struct timespec *t) {
    struct timespec own = given(t);
    return REAL("sem_timedwait", int (*)(sem_t *, const struct timespec *))(s, &own);
}

/* ---- where connections come from --------------------------------------------------------- */

int connect(int fd, const struct sockaddr *to, socklen_t length) {
    const char *own = getenv("CHAOS_ADDRESS");
    if (own && to->sa_family == AF_INET && length >= sizeof(struct sockaddr_in)) {
        struct sockaddr_in from = {.sin_family = AF_INET};
        struct in_addr there = ((const struct sockaddr_in *)to)->sin_addr;
        int yes = 1;
        if (ntohl(there.s_addr) >> 24 == 127 && inet_pton(AF_INET, own, &from.sin_addr) == 1) {
            setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &yes, sizeof yes);
            /* One that is bound already stays so. */
            bind(fd, (struct sockaddr *)&from, sizeof from);
        }
    }
    return REAL("connect", int (*)(int, const struct sockaddr *, socklen_t))(fd, to, length);
}

/* ---- what is not synced ------------------------------------------------------------------ */

typedef struct { int64_t synced, length; } Head;
typedef struct File { ino_t inode; Head head; int pre; struct File *next; } File;

#define HANDLES 65536
#define LINES 4096
#define GRAVES 16
static File *files, *opened[HANDLES];
static char *names[LINES], root[PATH_MAX], *place;
static int lines, graves, ready;
static long die_at = -1, fail_sync = -1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define OPEN REAL("open64", int (*)(const char *, int, ...))
#define PWRITE REAL("pwrite64", ssize_t (*)(int, const void *, size_t, off64_t))
#define UNLINK REAL("unlink", int (*)(const char *))
#define RENAME REAL("rename", int (*)(const char *, const char *))

static void write_names(void) {
    char path[PATH_MAX], new[PATH_MAX + 8];
    snprintf(path, sizeof path, "%s/names", place);
    snprintf(new, sizeof new, "%s.new", path);
    int fd = OPEN(new, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0) return;
    off64_t at = 0;
    for (int i = 0; i < lines; i++) {
        at += PWRITE(fd, names[i], strlen(names[i]), at);
        at += PWRITE(fd, "\n", 1, at);
    }
    close(fd);
    RENAME(new, path);
}

static void start(void) {
    if (ready) return;
    ready = 1;
    const char *below = getenv("CHAOS_ROOT");
    const char *dies = getenv("CHAOS_DIE_AT"), *fails = getenv("CHAOS_FAIL_SYNC");
    if (dies) die_at = atol(dies);
    if (fails) fail_sync = atol(fails);
    place = getenv("CHAOS_UNSYNCED");
    if (!place || !below) { place = NULL; return; }
    snprintf(root, sizeof root, "%s/", below);
    /* What a killed process had not synced is in the page cache still, and not on disk. */
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/names", place);
    int fd = OPEN(path, O_RDONLY);
    FILE *old = fd < 0 ? NULL : fdopen(fd, "r");
    char *line = NULL;
    size_t room = 0;
    while (old && lines < LINES && getline(&line, &room, old) > 0) {
        line[strcspn(line, "\n")] = 0;
        const char *grave = strstr(line, "/grave-");
        if (grave && atoi(grave + 7) >= graves) graves = atoi(grave + 7) + 1;
        names[lines++] = strdup(line);
    }
    free(line);
    if (old) fclose(old);
}

/* An operation below the root begins; called with the lock held. */
static void step(void) {
    if (die_at > 0 && --die_at == 0) kill(getpid(), SIGKILL);
}

/* The absolute path if it lies below the root. */
static const char *ours(int folder, const char *path, char *whole) {
    start();
    if (!place || !path) return NULL;
    if (path[0] == '/') snprintf(whole, PATH_MAX, "%s", path);
    else {
        char link[64], base[PATH_MAX];
        ssize_t n;
        if (folder == AT_FDCWD) n = getcwd(base, sizeof base) ? (ssize_t)strlen(base) : -1;
        else {
            snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
            n = readlink(link, base, sizeof base - 1);
        }
        if (n < 0) return NULL;
        base[n] = 0;
        if (snprintf(whole, PATH_MAX, "%s/%s", base, path) >= PATH_MAX) return NULL;
    }
    return strncmp(whole, root, strlen(root)) ? NULL : whole;
}

static void pre_path(ino_t inode, char *path) {
    snprintf(path, PATH_MAX, "%s/%lu.pre", place, (unsigned long)inode);
}

static void put_head(File *f) { PWRITE(f->pre, &f->head, sizeof f->head, 0); }

/* The file of an inode. `fresh`: just made, so nothing of it is on disk. */
static File *file_of(const struct stat *s, int fresh) {
    File *f = files;
    while (f && f->inode != s->st_ino) f = f->next;
    if (!f) {
        char path[PATH_MAX];
        f = calloc(1, sizeof *f);
        f->inode = s->st_ino;
        pre_path(s->st_ino, path);
        f->pre = OPEN(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (pread(f->pre, &f->head, sizeof f->head, 0) != sizeof f->head) {
            f->head = (Head){fresh ? 0 : s->st_size, 0};
            put_head(f);
        }
        f->next = files;
        files = f;
    }
    if (fresh) {
        f->head = (Head){0, 0};
        put_head(f);
    }
    return f;
}

/* What lies from `at` on will be overwritten or cut off: keep what is on disk of it. */
static void keep(File *f, int fd, int64_t at, int64_t size) {
    if (at >= f->head.synced) return;
    if (size > f->head.synced - at) size = f->head.synced - at;
    char *bytes = malloc(size);
    int64_t record[2] = {at, pread(fd, bytes, size, at)};
    if (record[1] > 0) {
        PWRITE(f->pre, record, sizeof record, sizeof f->head + f->head.length);
        PWRITE(f->pre, bytes, record[1], sizeof f->head + f->head.length + sizeof record);
        f->head.length += sizeof record + record[1];
        put_head(f);
    }
    free(bytes);
}

static void note(const char *kind, const char *a, const char *b, const char *grave) {
    char line[3 * PATH_MAX];
    snprintf(line, sizeof line, "%s\t%s\t%s\t%s", kind, a, b, grave);
    if (lines == LINES) {
        free(names[0]);
        memmove(names, names + 1, --lines * sizeof *names);
    }
    names[lines++] = strdup(line);
    write_names();
}

/* Another name for what is about to lose its own; only the last few are kept. */
static const char *bury(const char *path, char *grave) {
    snprintf(grave, PATH_MAX, "%s/grave-%d", place, graves);
    if (link(path, grave)) return "";
    char oldest[PATH_MAX];
    snprintf(oldest, sizeof oldest, "%s/grave-%d", place, graves++ - GRAVES);
    if (graves > GRAVES) UNLINK(oldest);
    return grave;
}

static void folder_synced(const char *folder) {
    size_t n = strlen(folder);
    int kept = 0;
    for (int i = 0; i < lines; i++) {
        char *path = strchr(names[i], '\t') + 1, *end = strchr(path, '\t');
        if (*names[i] == 'R') { path = end + 1; end = strchr(path, '\t'); }
        int inside = !strncmp(path, folder, n) && path[n] == '/';
        if (inside && !memchr(path + n + 1, '/', end - path - n - 1)) {
            char *grave = strrchr(names[i], '\t') + 1;
            if (*grave) UNLINK(grave);
            free(names[i]);
        } else names[kept++] = names[i];
    }
    if (kept != lines) { lines = kept; write_names(); }
}

static int open_file(int folder, const char *path, int flags, mode_t mode) {
    char whole[PATH_MAX];
    struct stat before, after;
    int (*real)(int, const char *, int, ...) = REAL("openat64", int (*)(int, const char *, int, ...));
    if (!(flags & (O_WRONLY | O_RDWR | O_CREAT)) || !ours(folder, path, whole))
        return real(folder, path, flags, mode);
    pthread_mutex_lock(&lock);
    int existed = !stat(whole, &before);
    if (existed && flags & O_TRUNC) {
        int old = OPEN(whole, O_RDONLY);
        keep(file_of(&before, 0), old, 0, before.st_size);
        close(old);
    }
    int fd = real(folder, path, flags, mode);
    if (fd >= 0 && fd < HANDLES && !fstat(fd, &after) && S_ISREG(after.st_mode)) {
        opened[fd] = file_of(&after, !existed);
        if (!existed) note("C", whole, "", "");
    }
    pthread_mutex_unlock(&lock);
    return fd;
}

#define MODE(flags) mode_t mode = 0; if ((flags) & (O_CREAT | O_TMPFILE)) { \
    va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest); }
int open(const char *p, int flags, ...) { MODE(flags) return open_file(AT_FDCWD, p, flags, mode); }
int open64(const char *p, int flags, ...) { MODE(flags) return open_file(AT_FDCWD, p, flags, mode); }
int openat(int d, const char *p, int flags, ...) { MODE(flags) return open_file(d, p, flags, mode); }
int openat64(int d, const char *p, int flags, ...) { MODE(flags) return open_file(d, p, flags, mode); }
int __open_2(const char *p, int flags) { return open_file(AT_FDCWD, p, flags, 0); }
int __open64_2(const char *p, int flags) { return open_file(AT_FDCWD, p, flags, 0); }
int creat(const char *p, mode_t m) { return open_file(AT_FDCWD, p, O_CREAT | O_WRONLY | O_TRUNC, m); }

int close(int fd) {
    if (fd >= 0 && fd < HANDLES) opened[fd] = NULL;
    return REAL("close", int (*)(int))(fd);
}

/* `at` < 0: where the handle stands. */
static File *before_write(int fd, int64_t at, int64_t size) {
    File *f = fd >= 0 && fd < HANDLES ? opened[fd] : NULL;
    if (!f) return NULL;
    pthread_mutex_lock(&lock);
    step();
    if (fcntl(fd, F_GETFL) & O_APPEND) at = f->head.synced;
    else if (at < 0) at = lseek(fd, 0, SEEK_CUR);
    if (at < f->head.synced) {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        int reader = OPEN(link, O_RDONLY);
        keep(f, reader, at, size);
        close(reader);
    }
    return f;
}

#define DONE(f, r) do { if (f) { int e = errno; pthread_mutex_unlock(&lock); errno = e; } \
    return r; } while (0)

ssize_t write(int fd, const void *b, size_t n) {
    File *f = before_write(fd, -1, n);
    ssize_t r = REAL("write", ssize_t (*)(int, const void *, size_t))(fd, b, n);
    DONE(f, r);
}
ssize_t pwrite64(int fd, const void *b, size_t n, off64_t at) {
    File *f = before_write(fd, at, n);
    ssize_t r = PWRITE(fd, b, n, at);
    DONE(f, r);
}
ssize_t pwrite(int fd, const void *b, size_t n, off_t at) { return pwrite64(fd, b, n, at); }
ssize_t writev(int fd, const struct iovec *v, int n) {
    int64_t size = 0;
    for (int i = 0; i < n; i++) size += v[i].iov_len;
    File *f = before_write(fd, -1, size);
    ssize_t r = REAL("writev", ssize_t (*)(int, const struct iovec *, int))(fd, v, n);
    DONE(f, r);
}
int ftruncate64(int fd, off64_t size) {
    File *f = before_write(fd, size, INT64_MAX);
    int r = REAL("ftruncate64", int (*)(int, off64_t))(fd, size);
    DONE(f, r);
}
int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

static int synced(int fd, const char *how) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, how);
    struct stat s;
    start();
    if (!place || fstat(fd, &s)) return real(fd);
    if (S_ISDIR(s.st_mode)) {
        char link[64], path[PATH_MAX];
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t n = readlink(link, path, sizeof path - 1);
        path[n < 0 ? 0 : n] = 0;
        if (strncmp(path, root, strlen(root) - 1)) return real(fd);
        pthread_mutex_lock(&lock);
        step();
        int r = real(fd);
        if (!r) folder_synced(path);
        pthread_mutex_unlock(&lock);
        return r;
    }
    File *f = fd < HANDLES ? opened[fd] : NULL;
    if (!f) return real(fd);
    pthread_mutex_lock(&lock);
    step();
    /* What is written while it runs is not covered. */
    fstat(fd, &s);
    int r = fail_sync > 0 && (fail_sync == 1 || --fail_sync == 0) ? (fail_sync = 1, errno = EIO, -1) : real(fd);
    if (!r) {
        f->head = (Head){s.st_size, 0};
        put_head(f);
    }
    DONE(f, r);
}
int fsync(int fd) { return synced(fd, "fsync"); }
int fdatasync(int fd) { return synced(fd, "fdatasync"); }

int renameat(int fa, const char *a, int fb, const char *b) {
    char from[PATH_MAX], to[PATH_MAX], grave[PATH_MAX];
    struct stat s;
    int (*real)(int, const char *, int, const char *) =
        REAL("renameat", int (*)(int, const char *, int, const char *));
    if (!ours(fa, a, from) || !ours(fb, b, to) || stat(from, &s) || S_ISDIR(s.st_mode))
        return real(fa, a, fb, b);
    pthread_mutex_lock(&lock);
    step();
    const char *old = access(to, F_OK) ? "" : bury(to, grave);
    int r = real(fa, a, fb, b);
    if (!r) note("R", from, to, old);
    pthread_mutex_unlock(&lock);
    return r;
}
int rename(const char *a, const char *b) { return renameat(AT_FDCWD, a, AT_FDCWD, b); }

int unlinkat(int folder, const char *path, int flags) {
    char whole[PATH_MAX], grave[PATH_MAX];
    int (*real)(int, const char *, int) = REAL("unlinkat", int (*)(int, const char *, int));
    if (flags & AT_REMOVEDIR || !ours(folder, path, whole) || access(whole, F_OK))
        return real(folder, path, flags);
    pthread_mutex_lock(&lock);
    step();
    const char *old = bury(whole, grave);
    int r = real(folder, path, flags);
    if (!r) note("U", whole, "", old);
    pthread_mutex_unlock(&lock);
    return r;
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
