/*
 * seal.c - seals and opens chunks, record by record.
 *
 *	master keys (file, by id)
 *	    |  wraps, by a salted subkey
 *	tenant's key (random, one per tenant)
 *	    |  HKDF with a random salt per process start
 *	subkey ---- AES-256-GCM, nonce = 4 zero bytes and a counter of 8, one per record
 *
 * Each start has its own subkey, since a counter can only be trusted as long as the process lives.
 * With a fresh 128-bit salt each start has keys of its own, so its counter may begin at 0; a crash
 * can lose everything but never repeat a pair of key and nonce. One atomic counter serves all
 * tenants. A forked child would use both again, so the sealer refuses to work in it (and the child
 * finds its keys wiped).
 *
 * Additional data of 144 bytes binds a record to its place; the salt and the first nonce are bound
 * because they decrypt it. Two records of a chunk cannot trade places, a record cannot be left out
 * (the chunk's length is in each), and a chunk cannot be moved to another key, tenant, store or
 * model.
 *
 * Subkeys of earlier starts are derived when one of their chunks is opened; the last few are kept
 * (HKDF costs some microseconds, which would be a third of opening a small chunk). A thread holds
 * the lock for a lookup in the tables, a copy of 32 bytes and at times a derivation, never while it
 * seals or opens data.
 */
#include "protect/seal.h"

#include <openssl/crypto.h>
#include <openssl/err.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "protect/little_endian.h"
#include "protect/tenant_keys.h"

#define FORMAT       1
#define AAD_RECORD   140 /* where the record's number is in the additional data */
#define AAD_BYTES    (AAD_RECORD + 4)
#define KEPT_SUBKEYS 32

/* A subkey from an earlier start of a process. */
struct kept_subkey {
	uint64_t tenant_key_id; /* 0: free */
	uint8_t salt[KVT_CRYPTO_SALT];
	uint8_t *subkey; /* points into the secrets; NULL until it is first used */
};

struct kvt_sealer {
	const struct kvt_surroundings *surroundings;
	struct kvt_crypto crypto;
	pid_t pid;
	_Atomic uint64_t next_nonce; /* relaxed, because values need only be different */

	pthread_mutex_t lock; /* guards all members below */
	struct kvt_secrets secrets;
	struct kvt_masters masters; /* constant after create */
	struct kvt_tenant_keys tenants;
	struct kept_subkey kept[KEPT_SUBKEYS];
	size_t next_kept; /* goes round */
};

/* --- life ------------------------------------------------------------------------------------- */

enum kvt_status kvt_sealer_create(const char *keys_path, const struct kvt_surroundings *s,
	struct kvt_sealer **out, char **report)
{
	struct kvt_sealer *sealer = calloc(1, sizeof(*sealer));
	enum kvt_status status;

	if (sealer == NULL)
		return KVT_ENOMEM;
	sealer->surroundings = s;
	sealer->pid = getpid();
	pthread_mutex_init(&sealer->lock, NULL);
	kvt_secrets_init(&sealer->secrets);
	status = kvt_crypto_init(&sealer->crypto);
	if (status == KVT_OK)
		status = kvt_tenant_keys_init(&sealer->tenants);
	if (status == KVT_OK)
		status =
			kvt_key_file_read(keys_path, s, &sealer->secrets, &sealer->masters, report);
	if (status == KVT_OK)
		*out = sealer;
	else
		kvt_sealer_destroy(sealer);
	return status;
}

void kvt_sealer_destroy(struct kvt_sealer *s)
{
	if (s == NULL)
		return;
	kvt_tenant_keys_finish(&s->tenants, &s->secrets);
	kvt_masters_finish(&s->masters, &s->secrets);
	kvt_secrets_finish(&s->secrets);
	kvt_crypto_finish(&s->crypto);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

/* --- tenants' keys ---------------------------------------------------------------------------- */

static struct kvt_tenant_key_means means_of(struct kvt_sealer *s)
{
	return (struct kvt_tenant_key_means){&s->crypto, &s->masters, &s->secrets};
}

enum kvt_status kvt_seal_tenant_key(struct kvt_sealer *s, const struct kvt_tenant *tenant,
	uint8_t wrapped[KVT_SEAL_WRAPPED_BYTES], bool *fresh)
{
	struct kvt_tenant_key_means means = means_of(s);
	struct kvt_tenant_key *key = NULL;
	enum kvt_status status;
	bool made = false;

	if (getpid() != s->pid)
		return KVT_EFORK;
	pthread_mutex_lock(&s->lock);
	status = kvt_tenant_keys_get(&s->tenants, &means, tenant, &key, &made);
	if (status == KVT_OK) {
		memcpy(wrapped, key->wrapped, sizeof(key->wrapped));
		*fresh = made;
	}
	pthread_mutex_unlock(&s->lock);
	return status;
}

enum kvt_status kvt_seal_take_tenant_key(
	struct kvt_sealer *s, const uint8_t wrapped[KVT_SEAL_WRAPPED_BYTES])
{
	struct kvt_tenant_key_means means = means_of(s);
	enum kvt_status status;

	if (getpid() != s->pid)
		return KVT_EFORK;
	pthread_mutex_lock(&s->lock);
	status = kvt_tenant_keys_take(&s->tenants, &means, wrapped);
	pthread_mutex_unlock(&s->lock);
	return status;
}

void kvt_seal_forget_tenant(struct kvt_sealer *s, const struct kvt_tenant *tenant)
{
	uint64_t id;

	if (getpid() != s->pid)
		return;
	pthread_mutex_lock(&s->lock);
	id = kvt_tenant_keys_forget(&s->tenants, &s->secrets, tenant);
	for (size_t i = 0; id != 0 && i < KEPT_SUBKEYS; i++) {
		if (s->kept[i].tenant_key_id != id)
			continue;
		kvt_secret_give(&s->secrets, s->kept[i].subkey);
		s->kept[i] = (struct kept_subkey){0};
	}
	pthread_mutex_unlock(&s->lock);
}

/* --- subkeys ---------------------------------------------------------------------------------- */

/* Finds the subkey for sealing, and sets the members of the header for it. */
static enum kvt_status sealing_subkey(struct kvt_sealer *s, const struct kvt_tenant *tenant,
	uint8_t out[KVT_CRYPTO_KEY], struct kvt_seal_header *header)
{
	const struct kvt_tenant_key *key;

	pthread_mutex_lock(&s->lock);
	key = kvt_tenant_keys_find(&s->tenants, tenant);
	if (key != NULL) {
		memcpy(out, key->subkey, KVT_CRYPTO_KEY);
		memcpy(header->salt, s->tenants.salt, sizeof(header->salt));
		header->key_id = key->master_id;
		header->tenant_key_id = key->id;
	}
	pthread_mutex_unlock(&s->lock);
	return key != NULL ? KVT_OK : KVT_MISS;
}

static struct kept_subkey *find_kept(struct kvt_sealer *s, const struct kvt_seal_header *header)
{
	for (size_t i = 0; i < KEPT_SUBKEYS; i++)
		if (s->kept[i].tenant_key_id == header->tenant_key_id &&
			memcmp(s->kept[i].salt, header->salt, KVT_CRYPTO_SALT) == 0)
			return &s->kept[i];
	return NULL;
}

static void keep(struct kvt_sealer *s, const struct kvt_seal_header *header,
	const uint8_t subkey[KVT_CRYPTO_KEY])
{
	struct kept_subkey *kept = &s->kept[s->next_kept];

	if (kept->subkey == NULL)
		kept->subkey = kvt_secret_take(&s->secrets);
	if (kept->subkey == NULL)
		return;
	s->next_kept = (s->next_kept + 1) % KEPT_SUBKEYS;
	kept->tenant_key_id = header->tenant_key_id;
	memcpy(kept->salt, header->salt, KVT_CRYPTO_SALT);
	memcpy(kept->subkey, subkey, KVT_CRYPTO_KEY);
}

/* Finds the subkey with which a chunk was sealed. KVT_MISS: the tenant does not have that key, or
 * no longer. */
static enum kvt_status opening_subkey(struct kvt_sealer *s, const struct kvt_tenant *tenant,
	const struct kvt_seal_header *header, uint8_t out[KVT_CRYPTO_KEY])
{
	enum kvt_status status = KVT_OK;
	const struct kvt_tenant_key *key;
	const struct kept_subkey *kept;

	pthread_mutex_lock(&s->lock);
	key = kvt_tenant_keys_find(&s->tenants, tenant);
	kept = key != NULL ? find_kept(s, header) : NULL;
	if (key == NULL || key->id != header->tenant_key_id) {
		status = KVT_MISS;
	} else if (memcmp(header->salt, s->tenants.salt, KVT_CRYPTO_SALT) == 0) {
		memcpy(out, key->subkey, KVT_CRYPTO_KEY);
	} else if (kept != NULL) {
		memcpy(out, kept->subkey, KVT_CRYPTO_KEY);
	} else {
		status =
			kvt_crypto_subkey(&s->crypto, key->key, header->salt, KVT_INFO_CHUNKS, out);
		if (status == KVT_OK)
			keep(s, header, out);
	}
	pthread_mutex_unlock(&s->lock);
	return status;
}

/* --- records ---------------------------------------------------------------------------------- */

/* Writes the additional data to which a record is bound, all but its number, which is written for
 * each record. */
static void write_aad(const struct kvt_seal_place *place, const struct kvt_seal_header *header,
	uint8_t aad[AAD_BYTES])
{
	uint8_t *at = aad;

	memcpy(at, "kvtier chunk\0\0\0", 16);
	at += 16;
	kvt_put32(at, header->format);
	at += 4;
	memcpy(at, &place->key, sizeof(place->key));
	at += sizeof(place->key);
	memcpy(at, &place->fingerprint, sizeof(place->fingerprint));
	at += sizeof(place->fingerprint);
	memcpy(at, &place->tenant, sizeof(place->tenant));
	at += sizeof(place->tenant);
	kvt_put32(at, place->tier);
	at += 4;
	memcpy(at, place->store_id, sizeof(place->store_id));
	at += sizeof(place->store_id);
	kvt_put32(at, header->key_id);
	kvt_put64(at + 4, header->tenant_key_id);
	/* the number of records follows from the chunk's length */
	kvt_put64(at + 12, place->bytes);
}

/* A moving place in segments. */
struct cursor {
	const struct kvt_segment *segments;
	size_t index;
	uint64_t offset; /* offset in the segment */
};

/* Returns the next bytes that are in one piece, at most `most`. */
static uint8_t *next_piece(struct cursor *c, uint64_t most, int *bytes)
{
	const struct kvt_segment *segment = &c->segments[c->index];
	uint64_t left;
	uint8_t *at;

	while (c->offset == segment->bytes) {
		segment = &c->segments[++c->index];
		c->offset = 0;
	}
	left = segment->bytes - c->offset;
	at = (uint8_t *)segment->base + c->offset;
	left = left < most ? left : most;
	c->offset += left;
	*bytes = (int)left; /* at most a record */
	return at;
}

/* A chunk that is being sealed or opened. */
struct job {
	EVP_CIPHER_CTX *ctx;
	uint8_t aad[AAD_BYTES];
	struct cursor plain;
	/* position in the sealed bytes, which are read or written record by record */
	uint8_t *sealed;
	uint64_t left;
	uint64_t nonce;
	uint32_t record;
};

/* Begins a record: sets nonce and additional data. Returns the record's length; 0: OpenSSL
 * refused. */
static uint64_t begin_record(struct job *job)
{
	uint8_t iv[KVT_CRYPTO_IV] = {0};
	int n = 0;

	for (int i = 0; i < 8; i++)
		iv[4 + i] = (uint8_t)(job->nonce >> (56 - 8 * i));
	kvt_put32(job->aad + AAD_RECORD, job->record);
	if (EVP_CipherInit_ex2(job->ctx, NULL, NULL, iv, -1, NULL) != 1 ||
		EVP_CipherUpdate(job->ctx, NULL, &n, job->aad, sizeof(job->aad)) != 1)
		return 0;
	return job->left < KVT_SEAL_RECORD ? job->left : KVT_SEAL_RECORD;
}

static void end_record(struct job *job, uint64_t bytes)
{
	job->left -= bytes;
	job->nonce++;
	job->record++;
}

static bool seal_record(struct job *job, uint8_t tag[KVT_SEAL_TAG_BYTES])
{
	uint64_t bytes = begin_record(job);
	int piece = 0, n = 0;

	if (bytes == 0)
		return false;
	for (uint64_t done = 0; done < bytes; done += (uint64_t)piece) {
		const uint8_t *from = next_piece(&job->plain, bytes - done, &piece);

		if (EVP_CipherUpdate(job->ctx, job->sealed, &n, from, piece) != 1)
			return false;
		job->sealed += piece;
	}
	end_record(job, bytes);
	return EVP_CipherFinal_ex(job->ctx, job->sealed, &n) == 1 &&
	       EVP_CIPHER_CTX_ctrl(job->ctx, EVP_CTRL_AEAD_GET_TAG, KVT_SEAL_TAG_BYTES, tag) == 1;
}

static enum kvt_status open_record(struct job *job, const uint8_t tag[KVT_SEAL_TAG_BYTES])
{
	uint8_t expected[KVT_SEAL_TAG_BYTES];
	uint64_t bytes = begin_record(job);
	int piece = 0, n = 0;

	if (bytes == 0)
		return KVT_EIO;
	for (uint64_t done = 0; done < bytes; done += (uint64_t)piece) {
		uint8_t *to = next_piece(&job->plain, bytes - done, &piece);

		if (EVP_CipherUpdate(job->ctx, to, &n, job->sealed, piece) != 1)
			return KVT_EIO;
		job->sealed += piece;
	}
	end_record(job, bytes);
	/* copied because OpenSSL's parameter is not const */
	memcpy(expected, tag, sizeof(expected));
	if (EVP_CIPHER_CTX_ctrl(job->ctx, EVP_CTRL_AEAD_SET_TAG, KVT_SEAL_TAG_BYTES, expected) != 1)
		return KVT_EIO;
	return EVP_CipherFinal_ex(job->ctx, expected, &n) == 1 ? KVT_OK : KVT_ECORRUPT;
}

/* Returns whether the segments have room for `bytes`, which must not be 0. */
static bool is_whole(const struct kvt_segment *segments, size_t count, uint64_t bytes)
{
	uint64_t room = 0;

	for (size_t i = 0; i < count && room < bytes; i++)
		if (__builtin_add_overflow(room, segments[i].bytes, &room))
			return true;
	return bytes > 0 && room >= bytes && bytes <= (uint64_t)UINT32_MAX * KVT_SEAL_RECORD;
}

static enum kvt_status begin_job(struct kvt_sealer *s, struct job *job, const uint8_t *subkey,
	const struct kvt_seal_place *place, const struct kvt_seal_header *header, bool seal)
{
	write_aad(place, header, job->aad);
	job->left = place->bytes;
	job->nonce = header->first_nonce;
	job->ctx = EVP_CIPHER_CTX_new();
	if (job->ctx == NULL)
		return KVT_ENOMEM;
	if (EVP_CipherInit_ex2(job->ctx, s->crypto.gcm, subkey, NULL, seal, NULL) == 1)
		return KVT_OK;
	return KVT_EIO;
}

/* Frees the context, and removes OpenSSL's errors from this thread. */
static void end_job(struct kvt_sealer *s, struct job *job, enum kvt_status status)
{
	EVP_CIPHER_CTX_free(job->ctx);
	if (status == KVT_EIO)
		kvt_note(s->surroundings, KVT_LOG_ERROR, "protect: OpenSSL refused: %s",
			ERR_reason_error_string(ERR_peek_last_error()));
	if (status != KVT_OK)
		ERR_clear_error();
}

enum kvt_status kvt_seal(struct kvt_sealer *s, const struct kvt_seal_place *place,
	const struct kvt_segment *from, size_t count, void *out, struct kvt_seal_header *header,
	uint8_t *tags)
{
	struct kvt_seal_header made = {.format = FORMAT};
	struct job job = {.plain = {.segments = from}, .sealed = out};
	uint8_t subkey[KVT_CRYPTO_KEY];
	uint32_t records;
	enum kvt_status status;

	if (!is_whole(from, count, place->bytes))
		return KVT_EINVAL;
	if (getpid() != s->pid)
		return KVT_EFORK;
	status = sealing_subkey(s, &place->tenant, subkey, &made);
	if (status != KVT_OK)
		return status;
	records = kvt_seal_records(place->bytes);
	made.first_nonce = atomic_fetch_add_explicit(&s->next_nonce, records, memory_order_relaxed);
	status = begin_job(s, &job, subkey, place, &made, true);
	OPENSSL_cleanse(subkey, sizeof(subkey));
	for (uint32_t i = 0; status == KVT_OK && i < records; i++)
		if (!seal_record(&job, tags + (size_t)i * KVT_SEAL_TAG_BYTES))
			status = KVT_EIO;
	end_job(s, &job, status);
	if (status == KVT_OK)
		*header = made;
	return status;
}

/* Overwrites the bytes that were decrypted before a wrong tag was found, since they must not be
 * used. */
static void wipe(const struct kvt_segment *segments, size_t count, uint64_t bytes)
{
	for (size_t i = 0; i < count && bytes > 0; i++) {
		uint64_t piece = segments[i].bytes < bytes ? segments[i].bytes : bytes;

		OPENSSL_cleanse(segments[i].base, piece);
		bytes -= piece;
	}
}

enum kvt_status kvt_open_sealed(struct kvt_sealer *s, const struct kvt_seal_place *place,
	const struct kvt_seal_header *header, const uint8_t *tags, const void *from,
	const struct kvt_segment *to, size_t count)
{
	struct job job = {.plain = {.segments = to}, .sealed = (uint8_t *)from};
	uint8_t subkey[KVT_CRYPTO_KEY];
	enum kvt_status status;

	if (!is_whole(to, count, place->bytes))
		return KVT_EINVAL;
	if (header->format != FORMAT)
		return KVT_ECORRUPT;
	if (getpid() != s->pid)
		return KVT_EFORK;
	status = opening_subkey(s, &place->tenant, header, subkey);
	if (status != KVT_OK)
		return status;
	status = begin_job(s, &job, subkey, place, header, false);
	OPENSSL_cleanse(subkey, sizeof(subkey));
	for (uint32_t i = 0; status == KVT_OK && i < kvt_seal_records(place->bytes); i++)
		status = open_record(&job, tags + (size_t)i * KVT_SEAL_TAG_BYTES);
	if (status != KVT_OK)
		wipe(to, count, place->bytes);
	end_job(s, &job, status);
	return status;
}
