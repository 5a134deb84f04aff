/*
 * seal_bench.c - how fast chunks are sealed and opened, compared with OpenSSL over the same bytes.
 *
 * The peer is one call of AES-256-GCM over a whole chunk with a context that is made once: no
 * records, no additional data, no keys to be looked up. Both run in turns in one process, on
 * processor time; figures are the median of the rounds, ratios the median of each pair's.
 *
 *   seal_bench [CHUNK_BYTES]      4194304; prints one line each: name, GB/s, peer's GB/s, ratio
 */
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "protect/seal.h"
#include "bench/timing.h"

#define ROUNDS      25
#define ROUND_BYTES (64u << 20)

struct work {
	struct kvt_sealer *sealer;
	struct kvt_seal_place place;
	struct kvt_seal_header header;
	struct kvt_segment segment;
	uint8_t *plain, *sealed, *tags;
	EVP_CIPHER_CTX *ctx;
	uint64_t count; /* number of chunks in a round */
};

static void die(const char *what)
{
	fprintf(stderr, "seal_bench: %s\n", what);
	exit(1);
}

static void seal_ours(struct work *w)
{
	if (kvt_seal(w->sealer, &w->place, &w->segment, 1, w->sealed, &w->header, w->tags) !=
		KVT_OK)
		die("a chunk was not sealed");
}

static void open_ours(struct work *w)
{
	if (kvt_open_sealed(w->sealer, &w->place, &w->header, w->tags, w->sealed, &w->segment, 1) !=
		KVT_OK)
		die("a chunk did not open");
}

static void run_peer(struct work *w, int seal)
{
	uint8_t iv[12] = {0}, tag[16] = {0};
	uint8_t *to = seal ? w->sealed : w->plain, *from = seal ? w->plain : w->sealed;
	int n = 0;

	if (EVP_CipherInit_ex2(w->ctx, NULL, NULL, iv, seal, NULL) != 1 ||
		EVP_CipherUpdate(w->ctx, to, &n, from, (int)w->place.bytes) != 1)
		die("OpenSSL refused");
	if (seal)
		EVP_CipherFinal_ex(w->ctx, tag, &n);
	else if (EVP_CIPHER_CTX_ctrl(w->ctx, EVP_CTRL_AEAD_SET_TAG, 16, tag) == 1)
		EVP_CipherFinal_ex(w->ctx, tag, &n); /* the tag is wrong, which costs the same */
}

static void seal_peer(struct work *w)
{
	run_peer(w, 1);
}

static void open_peer(struct work *w)
{
	run_peer(w, 0);
}

static double rate(struct work *w, void (*run)(struct work *w))
{
	double begun = kvb_cpu_seconds();

	for (uint64_t i = 0; i < w->count; i++)
		run(w);
	return (double)(w->count * w->place.bytes) / (kvb_cpu_seconds() - begun) / 1e9;
}

static void compare(struct work *w, const char *name, void (*ours)(struct work *w),
	void (*peer)(struct work *w))
{
	double own[ROUNDS], other[ROUNDS], ratio[ROUNDS];

	for (int i = 0; i < ROUNDS; i++) {
		seal_ours(w); /* seals the chunks that are opened below */
		own[i] = rate(w, ours);
		other[i] = rate(w, peer);
		ratio[i] = own[i] / other[i];
	}
	printf("%s %.2f %.2f %.3f\n", name, kvb_median(own, ROUNDS), kvb_median(other, ROUNDS),
		kvb_median(ratio, ROUNDS));
}

static struct kvt_sealer *make_sealer(const struct kvt_surroundings *s)
{
	char path[] = "/tmp/seal_bench-XXXXXX";
	struct kvt_sealer *sealer = NULL;
	int fd = mkstemp(path);

	if (fd < 0 || dprintf(fd, "1: %064x\n", 0x1234567) < 0 || fchmod(fd, 0600) != 0)
		die("no file for keys");
	close(fd);
	if (kvt_sealer_create(path, s, &sealer, NULL) != KVT_OK)
		die("no sealer");
	unlink(path);
	return sealer;
}

int main(int argc, char **argv)
{
	struct kvt_surroundings surroundings;
	struct work w = {.place = {.tier = KVT_TIER_NVME}};
	uint8_t wrapped[KVT_SEAL_WRAPPED_BYTES], key[32] = {1};
	bool fresh;

	w.place.bytes = argc > 1 ? strtoull(argv[1], NULL, 10) : 4u << 20;
	if (w.place.bytes < 16 || w.place.bytes > (1u << 30))
		die("expected a chunk of 16 bytes to 1 GiB");
	w.count = ROUND_BYTES / w.place.bytes + 1;
	kvt_surroundings_init(&surroundings, NULL);
	w.sealer = make_sealer(&surroundings);
	w.plain = calloc(1, w.place.bytes);
	w.sealed = calloc(1, w.place.bytes);
	w.tags = calloc(kvt_seal_records(w.place.bytes), KVT_SEAL_TAG_BYTES);
	w.ctx = EVP_CIPHER_CTX_new();
	w.segment = (struct kvt_segment){.base = w.plain, .bytes = w.place.bytes};
	if (w.plain == NULL || w.sealed == NULL || w.tags == NULL || w.ctx == NULL ||
		EVP_CipherInit_ex2(w.ctx, EVP_aes_256_gcm(), key, NULL, 1, NULL) != 1 ||
		kvt_seal_tenant_key(w.sealer, &w.place.tenant, wrapped, &fresh) != KVT_OK)
		die("no memory");
	compare(&w, "seal", seal_ours, seal_peer);
	compare(&w, "open", open_ours, open_peer);
	EVP_CIPHER_CTX_free(w.ctx);
	free(w.plain);
	free(w.sealed);
	free(w.tags);
	kvt_sealer_destroy(w.sealer);
	return 0;
}
