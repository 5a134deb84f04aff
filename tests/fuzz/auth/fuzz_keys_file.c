/*
 * fuzz_keys_file.c - any bytes as a file of clients' keys.
 *
 * A refusal says why in printable lines; of what is accepted each key is found by its hash, and by no other.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "auth/keys_file.h"
#include "tests/fuzz/lines.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const starts[] = {"f.yaml:", NULL};

static void check_ring(struct kvw_keyring *ring, const uint8_t *data, size_t size)
{
	const struct kvw_client_key *key;
	struct kvw_digest digest;

	require(kvw_keyring_count(ring) <= KVW_KEYRING_MOST);
	/* The hashes that tests and corpus have. */
	for (int byte = 0; byte < 256; byte++) {
		memset(digest.bytes, byte, sizeof(digest.bytes));
		key = kvw_keyring_find(ring, &digest);
		require(key == NULL || (memcmp(key->sha256.bytes, digest.bytes, sizeof(digest.bytes)) == 0 &&
					       kvw_keys_file_name_good(key->name)));
		if (key != NULL)
			(void)kvw_client_key_may_use(key, (struct kvw_slice){(const char *)data, size});
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct kvw_keyring *ring = NULL;
	char *errors = NULL;
	size_t errors_size = 0;
	FILE *to_errors = open_memstream(&errors, &errors_size);
	enum kvw_err err;

	require(to_errors != NULL);
	err = kvw_keys_file_parse("f.yaml", (const char *)data, size, to_errors, &ring);
	fclose(to_errors);
	require(err == KVW_OK || err == KVW_EINVAL);
	require((err == KVW_OK) == (ring != NULL));
	require((err == KVW_OK) == (errors_size == 0));
	if (err == KVW_OK)
		check_ring(ring, data, size);
	else
		check_lines(errors, starts);
	kvw_keyring_unref(ring);
	free(errors);
	return 0;
}
