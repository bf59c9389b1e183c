#include "vault/keyfile.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

static const char magic[8] = {'c', 'o', 'u', 'r', 'k', 'e', 'y', '1'};

enum kind { KIND_PLAIN = 'k', KIND_PASSPHRASE = 'p' };

/* what costs an attacker; what a damaged file may make us spend is bounded */
#define OPS_MAX 16u
#define MEM_MAX_KIB (1024u * 1024u)

/* on disk as it is here: bytes only, numbers little-endian */
struct keyfile {
    char magic[8];
    unsigned char kind, pad[7];
    unsigned char ops[4], mem_kib[4];
    unsigned char salt[crypto_pwhash_SALTBYTES];
    unsigned char key[VAULT_KEY_BYTES]; /* plain only, else zero */
    unsigned char check[24];
};
_Static_assert(sizeof(struct keyfile) == 96, "the file's size is its format");

static void put32(unsigned char *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (unsigned char)(v >> (8 * i));
}

static uint32_t get32(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
           (uint32_t)p[3] << 24;
}

static void check_value(const unsigned char *key, unsigned char out[24])
{
    static const char words[] = "courier key check";

    crypto_generichash(out, 24, (const unsigned char *)words,
                       sizeof(words) - 1, key, VAULT_KEY_BYTES);
}

static int derive(const struct keyfile *f, const char *passphrase,
                  unsigned char *key, struct err *e)
{
    uint32_t ops = get32(f->ops), mem = get32(f->mem_kib);

    if (!ops || ops > OPS_MAX || mem < 8 || mem > MEM_MAX_KIB)
        return err_set(e, EINVAL, "the key file is damaged");
    if (crypto_pwhash(key, VAULT_KEY_BYTES, passphrase, strlen(passphrase),
                      f->salt, ops, (size_t)mem * 1024,
                      crypto_pwhash_ALG_ARGON2ID13))
        return err_set(e, ENOMEM, "no memory to derive the key (%u MiB)",
                       mem / 1024);
    return 0;
}

static int safe_to_read(int fd, const char *path, struct err *e)
{
    struct stat st;

    if (fstat(fd, &st))
        return err_set(e, errno, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return err_set(e, EINVAL, "%s is not a regular file", path);
    if (st.st_mode & 077)
        return err_set(e, EACCES,
                       "%s can be used by others (mode %03o): chmod 600 it",
                       path, st.st_mode & 0777u);
    if (st.st_uid != geteuid())
        return err_set(e, EACCES, "%s belongs to another user", path);
    if (st.st_size != sizeof(struct keyfile))
        return err_set(e, EINVAL, "%s is damaged (%lld bytes, not %zu)", path,
                       (long long)st.st_size, sizeof(struct keyfile));
    return 0;
}

static int load(const char *path, struct keyfile *f, struct err *e)
{
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    int r;

    if (fd < 0)
        return err_set(e, errno, "%s: %s", path, strerror(errno));
    r = safe_to_read(fd, path, e);
    if (r)
        return r;
    if (pread(fd, f, sizeof(*f), 0) != sizeof(*f))
        return err_set(e, EIO, "%s can't be read", path);
    if (memcmp(f->magic, magic, sizeof(magic)))
        return err_set(e, EINVAL, "%s is not a key file of courier", path);
    return 0;
}

static int take_key(const char *path, const struct keyfile *f,
                    const char *passphrase, unsigned char *key, struct err *e)
{
    if (f->kind == KIND_PASSPHRASE) {
        if (!passphrase)
            return err_set(e, EACCES, "%s needs a passphrase", path);
        return derive(f, passphrase, key, e);
    }
    if (f->kind != KIND_PLAIN)
        return err_set(e, EINVAL, "%s is damaged", path);
    if (passphrase)
        return err_set(e, EACCES, "%s was made without a passphrase", path);
    memcpy(key, f->key, VAULT_KEY_BYTES);
    return 0;
}

int keyfile_read(const char *path, const char *passphrase, unsigned char *key,
                 struct err *e)
{
    struct keyfile f;
    unsigned char check[24];
    int r = load(path, &f, e);

    if (!r)
        r = take_key(path, &f, passphrase, key, e);
    if (!r) {
        check_value(key, check);
        if (sodium_memcmp(check, f.check, sizeof(check)))
            r = f.kind == KIND_PASSPHRASE
                    ? err_set(e, EACCES, "the passphrase is wrong")
                    : err_set(e, EINVAL, "%s is damaged", path);
    }
    if (r)
        sodium_memzero(key, VAULT_KEY_BYTES);
    sodium_memzero(&f, sizeof(f));
    return r;
}

static int sync_dir_of(const char *path)
{
    AUTO_FREE char *dir = xstrdup(path);
    char *slash = strrchr(dir, '/');
    AUTO_CLOSE int fd = -1;

    if (slash)
        slash[slash == dir] = 0;
    fd = open(slash ? dir : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 || fsync(fd) ? -errno : 0;
}

/* whole or not at all, and never over another: linked into place */
static int store(const char *path, const struct keyfile *f, struct err *e)
{
    AUTO_FREE char *tmp = xasprintf("%s.XXXXXX", path);
    AUTO_CLOSE int fd = mkostemp(tmp, O_CLOEXEC); /* makes it 0600 */
    int r;

    if (fd < 0)
        return err_set(e, errno, "%s: %s", path, strerror(errno));
    r = fd_write_all(fd, f, sizeof(*f));
    if (!r && fsync(fd))
        r = -errno;
    if (!r && link(tmp, path))
        r = -errno;
    unlink(tmp);
    if (!r)
        r = sync_dir_of(path);
    return r ? err_set(e, r, "%s: %s", path, strerror(-r)) : 0;
}

int keyfile_make(const char *path, const char *passphrase, unsigned char *key,
                 struct err *e)
{
    struct keyfile f = {.kind = passphrase ? KIND_PASSPHRASE : KIND_PLAIN};
    int r = 0;

    memcpy(f.magic, magic, sizeof(magic));
    if (passphrase) {
        put32(f.ops, crypto_pwhash_OPSLIMIT_INTERACTIVE);
        put32(f.mem_kib, crypto_pwhash_MEMLIMIT_INTERACTIVE / 1024);
        randombytes_buf(f.salt, sizeof(f.salt));
        r = derive(&f, passphrase, key, e);
    } else {
        randombytes_buf(key, VAULT_KEY_BYTES);
        memcpy(f.key, key, VAULT_KEY_BYTES);
    }
    if (!r) {
        check_value(key, f.check);
        r = store(path, &f, e);
    }
    if (r)
        sodium_memzero(key, VAULT_KEY_BYTES);
    sodium_memzero(&f, sizeof(f));
    return r;
}

int keyfile_replace(const char *from, const char *to, struct err *e)
{
    int r = rename(from, to) ? -errno : sync_dir_of(to);

    return r ? err_set(e, r, "%s: %s", to, strerror(-r)) : 0;
}
