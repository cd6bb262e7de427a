/* What a process did to the files below $POWERCUT_ROOT, as lines in $POWERCUT_LOG: names that came and went, and what was synced.
 * Loaded with LD_PRELOAD, so that it sits below every library of the process, RocksDB too (tests/kit/powercut.py reads the lines).
 *
 *   + INODE PATH    a name was made          - INODE PATH    a name was removed
 *   S INODE SIZE    a file was synced        D - PATH        a directory was synced
 *
 * A name that is about to vanish is first linked into $POWERCUT_GRAVE under its inode: its removal may not have been synced.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int log_fd = -1;
static const char *root, *grave;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("POWERCUT_LOG");
    root = getenv("POWERCUT_ROOT");
    grave = getenv("POWERCUT_GRAVE");
    if (path && root && grave)
        log_fd = REAL(open)(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static int below_root(const char *path)
{
    size_t n = root ? strlen(root) : 0;
    return log_fd >= 0 && n && !strncmp(path, root, n) && (path[n] == '/' || !path[n]);
}

/* The absolute path of `name` as seen from `directory`; 0 if it is none of ours. */
static int resolve(int directory, const char *name, char *out)
{
    char base[PATH_MAX], link[64];
    if (name[0] == '/') {
        snprintf(out, PATH_MAX, "%s", name);
        return below_root(out);
    }
    if (directory == AT_FDCWD) {
        if (!getcwd(base, sizeof base)) return 0;
    } else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
        ssize_t got = readlink(link, base, sizeof base - 1);
        if (got < 0) return 0;
        base[got] = 0;
    }
    if (snprintf(out, PATH_MAX, "%s/%s", base, name) >= PATH_MAX) return 0;
    return below_root(out);
}

static void say(char what, unsigned long number, const char *path)
{
    char line[PATH_MAX + 64];
    int n = snprintf(line, sizeof line, "%c %lu %s\n", what, number, path);
    if (n > 0 && write(log_fd, line, n) != n) abort();
}

static int inode(const char *path, unsigned long *out)
{
    struct stat s;
    if (lstat(path, &s)) return 0;
    *out = s.st_ino;
    return 1;
}

static void say_made(const char *path)
{
    unsigned long number;
    if (inode(path, &number)) say('+', number, path);
}

/* Keep what `path` names; true if it names something. */
static int bury(const char *path, unsigned long *number)
{
    char kept[PATH_MAX];
    if (!inode(path, number)) return 0;
    snprintf(kept, sizeof kept, "%s/%lu", grave, *number);
    REAL(linkat)(AT_FDCWD, path, AT_FDCWD, kept, 0);
    return 1;
}

static void say_synced(int fd)
{
    char link[64], path[PATH_MAX], size[32];
    struct stat s;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t got = readlink(link, path, sizeof path - 1);
    if (got < 0) return;
    path[got] = 0;
    if (!below_root(path) || fstat(fd, &s)) return;
    if (S_ISDIR(s.st_mode)) {
        say('D', 0, path);
    } else {
        snprintf(size, sizeof size, "%lld", (long long)s.st_size);
        say('S', s.st_ino, size);
    }
}

static int open_noted(int directory, const char *file, int flags, mode_t mode)
{
    char path[PATH_MAX];
    int ours = flags & O_CREAT && resolve(directory, file, path);
    int existed = ours ? !access(path, F_OK) : 1;
    int fd = REAL(openat)(directory, file, flags, mode);
    if (fd >= 0 && !existed) say_made(path);
    return fd;
}

#define WITH_MODE                                                        \
    va_list more;                                                        \
    va_start(more, flags);                                               \
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, int) : 0; \
    va_end(more);

int openat(int d, const char *file, int flags, ...) { WITH_MODE return open_noted(d, file, flags, mode); }
int openat64(int d, const char *file, int flags, ...) { WITH_MODE return open_noted(d, file, flags, mode); }
int open(const char *file, int flags, ...) { WITH_MODE return open_noted(AT_FDCWD, file, flags, mode); }
int open64(const char *file, int flags, ...) { WITH_MODE return open_noted(AT_FDCWD, file, flags, mode); }

static int made_directory(int result, int directory, const char *name)
{
    char path[PATH_MAX];
    if (!result && resolve(directory, name, path)) say_made(path);
    return result;
}

int mkdir(const char *name, mode_t mode) { return made_directory(REAL(mkdir)(name, mode), AT_FDCWD, name); }
int mkdirat(int d, const char *name, mode_t mode) { return made_directory(REAL(mkdirat)(d, name, mode), d, name); }

int linkat(int from_at, const char *from, int to_at, const char *to, int flags)
{
    char path[PATH_MAX];
    int result = REAL(linkat)(from_at, from, to_at, to, flags);
    if (!result && resolve(to_at, to, path)) say_made(path);
    return result;
}
int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

int renameat(int from_at, const char *from, int to_at, const char *to)
{
    char source[PATH_MAX], target[PATH_MAX];
    unsigned long moved, old;
    int ours = resolve(from_at, from, source) && resolve(to_at, to, target) && inode(source, &moved);
    if (ours) bury(target, &old);
    int result = REAL(renameat)(from_at, from, to_at, to);
    if (!result && ours) {
        say('-', moved, source);
        say_made(target);
    }
    return result;
}
int rename(const char *from, const char *to) { return renameat(AT_FDCWD, from, AT_FDCWD, to); }

int unlinkat(int directory, const char *name, int flags)
{
    char path[PATH_MAX];
    unsigned long number;
    int ours = resolve(directory, name, path) && (flags & AT_REMOVEDIR ? inode(path, &number) : bury(path, &number));
    int result = REAL(unlinkat)(directory, name, flags);
    if (!result && ours) say('-', number, path);
    return result;
}
int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }

static int synced(int result, int fd)
{
    if (!result) say_synced(fd);
    return result;
}
int fsync(int fd) { return synced(REAL(fsync)(fd), fd); }
int fdatasync(int fd) { return synced(REAL(fdatasync)(fd), fd); }
