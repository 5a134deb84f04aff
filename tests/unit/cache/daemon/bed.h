/*
 * bed.h - objects over a segment and a store of their own, and a client's own view of the segment.
 */
#ifndef KVT_TEST_DAEMON_BED_H
#define KVT_TEST_DAEMON_BED_H

#include <check.h>

#include "daemon/objects.h"

#define MIB    ((uint64_t)1 << 20)
#define SECOND 1000000000ull

/* A check for inner loops and for threads: Check's own assertions write to a file each time. */
#define EXPECT(condition)                                                                          \
	do {                                                                                       \
		if (!(condition))                                                                  \
			ck_abort_msg("%s:%d: %s", __FILE__, __LINE__, #condition);                 \
	} while (0)

struct bed {
	struct kvt_surroundings surroundings;
	struct kvt_config cache;
	struct kvt_objects_options options; /* no object stays in memory for its size */
	char name[64], folder[64], side[96], store[96], catalog[96], table[96];
	uint64_t bytes; /* of the segment */
	struct kvt_segment_file *segment;
	struct kvt_objects *objects;
	const struct kvt_tenant *tenant; /* that clients name when they put; NULL: none */
	bool unchecked; /* that clients wish of what they lease */
	const uint8_t *view; /* a client's mapping, read-only; by name, made once */
};

/* Names, folder and options; change these before bed_open. */
void bed_init(struct bed *bed, uint64_t bytes);
void bed_use_store(struct bed *bed); /* NVMe, names and tenants in its folder */
void bed_open(struct bed *bed);
void bed_close(struct bed *bed); /* as a daemon ends; may be opened again */
void bed_clear(struct bed *bed); /* closed: removes all */
/* Maps the segment by its name, as a client does. */
void bed_attach(struct bed *bed);

struct kvt_object_name name_of(const char *bucket, const char *key);

/* Byte i of an object: it begins with its seed, from which the rest follows. */
static inline uint8_t byte_of(uint64_t seed, uint64_t i)
{
	uint64_t word = (seed + i / 8) * 0x9e3779b97f4a7c15ull;

	if (i < 8)
		return (uint8_t)(seed >> (8 * i));
	return (uint8_t)((word ^ word >> 29) >> (i % 8 * 8));
}

/* Begins a put and fills it with bytes of this seed. */
enum kvt_status put_begin(struct bed *bed, const char *bucket, const char *key, uint64_t seed,
	uint64_t bytes, struct kvt_object_put **put, struct kvt_checksum *sum);
/* Puts a whole object; outcome may be NULL. */
enum kvt_status put(struct bed *bed, const char *bucket, const char *key, uint64_t seed,
	uint64_t bytes, enum kvt_put_outcome *outcome);

/* A lease as a client has it. */
struct lease {
	enum kvt_status status;
	char id[KVT_LEASE_ID_BYTES];
	struct kvt_segment fragments[16];
	uint32_t count;
	uint64_t bytes;
};

/* Waits for the answer. */
enum kvt_status lease(struct bed *bed, const char *bucket, const char *key, uint64_t timeout_ns,
	uint64_t ttl_ns, struct lease *out);
enum kvt_status release(struct bed *bed, const struct lease *lease);
/* Do the bytes under a lease, as the client sees them, have this seed? */
bool reads(const struct bed *bed, const struct lease *lease, uint64_t seed);
/* The seed that they begin with (of at least 8 bytes in the first fragment). */
uint64_t seed_of(const struct bed *bed, const struct lease *lease);
/* Lease, compare, release: KVT_OK only if the bytes are right; aborts if they are wrong. */
enum kvt_status get(struct bed *bed, const char *bucket, const char *key, uint64_t seed);

struct kvt_objects_stats stats_of(struct bed *bed);

#endif
