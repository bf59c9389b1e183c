#include "vault/vault.h"
#include "vault/keyfile.h"

#include <pthread.h>
#include <sodium.h>
#include <unistd.h>

enum {
    NONCE = crypto_aead_xchacha20poly1305_ietf_NPUBBYTES,
    TAG = crypto_aead_xchacha20poly1305_ietf_ABYTES,
};

/*
 * While PATH.new exists a rotation is under way, or was cut short: then the
 * record may be sealed with either key. So both are loaded, the old one
 * seals, either opens; that the new one opens something proves that the
 * caller's transaction was committed, and the rotation is finished then.
 */
struct vault {
    pthread_mutex_t lock; /* guards which keys these are */
    char *path;           /* the key file; of a fresh vault: PATH.new */
    unsigned char *key;   /* locked memory */
    unsigned char *other; /* the second key of a cut rotation, or NULL */
    bool fresh;           /* not committed: closing it drops its file */
    bool other_is_new;
};

static char *new_path(const struct vault *v)
{
    return xasprintf("%s.new", v->path);
}

static unsigned char *key_alloc(void)
{
    unsigned char *k = sodium_malloc(VAULT_KEY_BYTES);

    if (!k)
        abort();
    return k;
}

static struct vault *vault_new(char *path)
{
    struct vault *v = xcalloc(1, sizeof(*v));

    pthread_mutex_init(&v->lock, NULL);
    v->path = path;
    v->key = key_alloc();
    return v;
}

static int read_or_make(struct vault *v, const char *passphrase, struct err *e)
{
    int r = keyfile_read(v->path, passphrase, v->key, e);

    if (r != -ENOENT)
        return r;
    r = keyfile_make(v->path, passphrase, v->key, e);
    /* another process was quicker: its key is the key */
    return r == -EEXIST ? keyfile_read(v->path, passphrase, v->key, e) : r;
}

/* a rotation that was cut short left a second key */
static void read_other(struct vault *v, const char *passphrase)
{
    AUTO_FREE char *path = new_path(v);

    v->other = key_alloc();
    v->other_is_new = true;
    if (access(path, F_OK) || keyfile_read(path, passphrase, v->other, NULL)) {
        sodium_free(v->other);
        v->other = NULL;
    }
}

/* the passphrase opens the new file only: that is our key then */
static int adopt_other(struct vault *v)
{
    unsigned char *k = v->key;
    AUTO_FREE char *path = new_path(v);

    if (!v->other)
        return -ENOENT;
    v->key = v->other;
    v->other = NULL;
    sodium_free(k);
    return keyfile_replace(path, v->path, NULL);
}

int vault_open(const char *path, const char *passphrase, struct vault **out,
               struct err *e)
{
    struct vault *v;
    int r;

    *out = NULL;
    if (sodium_init() < 0)
        return err_set(e, EIO, "libsodium does not start");
    if (passphrase && !*passphrase)
        return err_set(e, EINVAL, "the passphrase is empty");
    v = vault_new(xstrdup(path));
    r = read_or_make(v, passphrase, e);
    read_other(v, passphrase);
    if (r == -EACCES && !adopt_other(v))
        r = 0;
    if (r) {
        vault_close(v);
        return r;
    }
    *out = v;
    return 0;
}

void vault_close(struct vault *v)
{
    if (!v)
        return;
    if (v->fresh)
        unlink(v->path);
    sodium_free(v->key);
    sodium_free(v->other);
    pthread_mutex_destroy(&v->lock);
    free(v->path);
    free(v);
}

int vault_seal(struct vault *v, const char *label, const void *p, size_t n,
               struct buf *out, struct err *e)
{
    unsigned char *nonce, *c;
    unsigned long long len;

    if (n > SIZE_MAX / 2)
        return err_set(e, EFBIG, "too large to encrypt");
    buf_reserve(out, NONCE + n + TAG + 1);
    nonce = (unsigned char *)out->p + out->n;
    c = nonce + NONCE;
    randombytes_buf(nonce, NONCE);
    pthread_mutex_lock(&v->lock);
    crypto_aead_xchacha20poly1305_ietf_encrypt(
        c, &len, p, n, (const unsigned char *)label, strlen(label), NULL,
        nonce, v->key);
    pthread_mutex_unlock(&v->lock);
    out->n += NONCE + (size_t)len;
    out->p[out->n] = 0;
    return 0;
}

static bool opens(const unsigned char *key, const char *label,
                  const unsigned char *p, size_t n, char *plain)
{
    unsigned long long len;

    return key && !crypto_aead_xchacha20poly1305_ietf_decrypt(
                      (unsigned char *)plain, &len, NULL, p + NONCE, n - NONCE,
                      (const unsigned char *)label, strlen(label), p, key);
}

/* called with the lock: the other key opened something */
static void finish_rotation(struct vault *v)
{
    AUTO_FREE char *path = new_path(v);
    unsigned char *k = v->key;

    if (!v->other_is_new || keyfile_replace(path, v->path, NULL))
        return;
    v->key = v->other;
    v->other = k; /* still opens what it sealed in this process */
    v->other_is_new = false;
}

int vault_unseal(struct vault *v, const char *label, const void *p, size_t n,
                 char **plain, size_t *len, struct err *e)
{
    size_t m = n - NONCE - TAG;
    char *s;
    bool ok;

    *plain = NULL;
    if (n < NONCE + TAG)
        return err_set(e, EBADMSG, "%s: the sealed text is cut short", label);
    s = sodium_malloc(m + 1);
    if (!s)
        return err_set(e, ENOMEM, "no memory that can be locked");
    pthread_mutex_lock(&v->lock);
    ok = opens(v->key, label, p, n, s);
    if (!ok && opens(v->other, label, p, n, s)) {
        ok = true;
        finish_rotation(v);
    }
    pthread_mutex_unlock(&v->lock);
    if (!ok) {
        sodium_free(s);
        return err_set(e, EBADMSG,
                       "%s: changed, or sealed with another master key",
                       label);
    }
    s[m] = 0;
    *plain = s;
    if (len)
        *len = m;
    return 0;
}

void vault_free(char *plain)
{
    sodium_free(plain);
}

char *vault_dup(const char *s, size_t n)
{
    char *p;

    if (sodium_init() < 0)
        abort();
    p = sodium_malloc(n + 1);
    if (!p)
        abort();
    if (n)
        memcpy(p, s, n);
    p[n] = 0;
    return p;
}

int vault_rotate_begin(struct vault *v, const char *passphrase,
                       struct vault **fresh, struct err *e)
{
    struct vault *f = vault_new(new_path(v));
    int r;

    *fresh = NULL;
    /* the key of a cut rotation may be what the record is sealed with: it
     * is taken again; one that nothing can open is made anew */
    r = keyfile_read(f->path, passphrase, f->key, e);
    if (r == -EACCES || r == -EINVAL) {
        unlink(f->path);
        r = -ENOENT;
    }
    if (r == -ENOENT)
        r = keyfile_make(f->path, passphrase, f->key, e);
    if (r) {
        vault_close(f);
        return r;
    }
    f->fresh = true;
    *fresh = f;
    return 0;
}

int vault_rotate_commit(struct vault *v, struct vault *fresh, struct err *e)
{
    unsigned char *old;
    int r;

    pthread_mutex_lock(&v->lock);
    r = keyfile_replace(fresh->path, v->path, e);
    if (!r) {
        fresh->fresh = false;
        old = v->key;
        v->key = fresh->key;
        fresh->key = key_alloc();
        memset(fresh->key, 0, VAULT_KEY_BYTES);
        sodium_free(v->other);
        v->other = old; /* threads that read the record a moment ago */
        v->other_is_new = false;
    }
    pthread_mutex_unlock(&v->lock);
    return r;
}

void vault_hint(const char *plain, size_t n, char out[16])
{
    if (n < 12) {
        snprintf(out, 16, "****");
        return;
    }
    snprintf(out, 16, "****");
    for (int i = 0; i < 4; i++) {
        unsigned char c = (unsigned char)plain[n - 4 + (size_t)i];

        out[4 + i] = (char)(c > 0x20 && c < 0x7f ? c : '?');
    }
    out[8] = 0;
}
