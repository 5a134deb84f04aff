/*
 * memory_test.c - sealing when memory, pages or OpenSSL's contexts run out at any point.
 *
 * The linker sends this program's calls through the functions below (-Wl,--wrap). Each run lets one
 * more of them succeed than the run before, until the whole goes through. Whatever fails says so, a
 * chunk that was opened is right, and nothing is left behind.
 */
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <sys/mman.h>

#include "chunk.h"
#include "tests/unit/counting_allocator.h"
#include "tests/unit/suite.h"

/* mmap is called by this name where offsets have 64 bits, as meson has them everywhere. */
void *__real_mmap64(void *at, size_t size, int protection, int flags, int fd, off_t offset);
int __real_munmap(void *at, size_t size);
FILE *__real_open_memstream(char **text, size_t *size);
EVP_CIPHER_CTX *__real_EVP_CIPHER_CTX_new(void);
EVP_KDF_CTX *__real_EVP_KDF_CTX_new(EVP_KDF *kdf);
void *__wrap_mmap64(void *at, size_t size, int protection, int flags, int fd, off_t offset);
int __wrap_munmap(void *at, size_t size);
FILE *__wrap_open_memstream(char **text, size_t *size);
EVP_CIPHER_CTX *__wrap_EVP_CIPHER_CTX_new(void);
EVP_KDF_CTX *__wrap_EVP_KDF_CTX_new(EVP_KDF *kdf);

void *__wrap_mmap64(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
	void *map = may_allocate() ? __real_mmap64(at, size, protection, flags, fd, offset) : MAP_FAILED;

	live += counting && map != MAP_FAILED;
	return map;
}

int __wrap_munmap(void *at, size_t size)
{
	live -= counting;
	return __real_munmap(at, size);
}

FILE *__wrap_open_memstream(char **text, size_t *size)
{
	FILE *file = may_allocate() ? __real_open_memstream(text, size) : NULL;

	live += counting && file != NULL;
	return file;
}

EVP_CIPHER_CTX *__wrap_EVP_CIPHER_CTX_new(void)
{
	return may_allocate() ? __real_EVP_CIPHER_CTX_new() : NULL;
}

EVP_KDF_CTX *__wrap_EVP_KDF_CTX_new(EVP_KDF *kdf)
{
	return may_allocate() ? __real_EVP_KDF_CTX_new(kdf) : NULL;
}

/* A whole life: created, a key made, sealed, opened; then again by another start with the key that
 * was kept. The first thing that fails ends it. */
static enum kvt_status live_once(const char *path, const struct kvt_surroundings *s,
	struct chunk *c, uint8_t wrapped[KVT_SEAL_WRAPPED_BYTES], bool again)
{
	struct kvt_sealer *sealer = NULL;
	char *report = NULL;
	bool fresh = false;
	enum kvt_status status = kvt_sealer_create(path, s, &sealer, &report);

	if (status == KVT_OK && again)
		status = kvt_seal_take_tenant_key(sealer, wrapped);
	else if (status == KVT_OK)
		status = kvt_seal_tenant_key(sealer, &c->place.tenant, wrapped, &fresh);
	if (status == KVT_OK && !again)
		status = kvt_seal(sealer, &c->place, c->segments, chunk_cut(c, c->plain, 2),
			c->sealed, &c->header, c->tags);
	if (status == KVT_OK)
		status = chunk_open(c, sealer, 3);
	kvt_sealer_destroy(sealer);
	kvt_text_free(report);
	return status;
}

START_TEST(whatever_runs_out_is_reported)
{
	uint8_t wrapped[KVT_SEAL_WRAPPED_BYTES];
	struct kvt_surroundings surroundings;
	struct logged logged;
	struct chunk c;
	char path[64];
	long failures = 0;

	surroundings_start(&surroundings, &logged);
	write_keys("1: " KEY_A "\n2: " KEY_B "\n", 0600, path);
	chunk_start(&c, 3, 5000);
	for (int again = 0; again < 2; again++) {
		enum kvt_status status = KVT_ENOMEM;

		for (long limit = 0; status != KVT_OK; limit++) {
			ck_assert_int_lt(limit, 200);
			live = 0;
			allowed = limit;
			counting = true;
			status = live_once(path, &surroundings, &c, wrapped, again == 1);
			counting = false;
			allowed = -1;
			ck_assert_msg(
				live == 0, "limit %ld: status %d, live %ld", limit, status, live);
			ck_assert(status == KVT_OK || status == KVT_ENOMEM || status == KVT_EIO);
			failures += status != KVT_OK;
		}
		ck_assert_mem_eq(c.opened, c.plain, c.place.bytes);
	}
	ck_assert_int_gt(failures, 10);
	unlink(path);
	chunk_end(&c);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("memory");

	tcase_add_test(tc, whatever_runs_out_is_reported);
	return run_tcase("cache-protect-memory", tc);
}
