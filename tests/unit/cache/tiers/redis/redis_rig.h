/*
 * redis_rig.h - Redis tiers in a test's hands: two handles of one server.
 *
 * A chunk's bytes are a function of its number, so that whatever a read gives can be checked; wrong
 * bytes end the test program at once. Time moves by 20 us with every step.
 */
#ifndef REDIS_RIG_H
#define REDIS_RIG_H

#include <stdbool.h>

#include "tiers/tier.h"

#define RIG_HANDLES 2
#define RIG_MOST    (2u << 20) /* bytes of a chunk */

struct redis_rig {
	struct kvt_config config;
	struct kvt_surroundings surroundings;
	struct kvt_clock clock;
	int64_t now_ns;
	int64_t real; /* not 0: the machine's clock, for real servers */
	struct kvt_tier *tiers[RIG_HANDLES];
	char why[KVT_REASON_BYTES];
	char last_log[512];
	unsigned warnings;
	bool had_names; /* the last read brought names */
	struct kvt_checksum checksum;
};

void rig_init(struct redis_rig *r);
enum kvt_status rig_open(struct redis_rig *r, int handle);
void rig_close(struct redis_rig *r, int handle);
void rig_finish(struct redis_rig *r);

struct kvt_key rig_key(uint64_t n);
uint8_t rig_byte(uint64_t n, uint64_t at);

/* One request, waited for. */
enum kvt_status rig_put(struct redis_rig *r, int handle, uint64_t n, uint64_t bytes);
enum kvt_status rig_put_item(struct redis_rig *r, int handle, uint64_t n, struct kvt_item *item);
enum kvt_status rig_get(struct redis_rig *r, int handle, uint64_t n, uint64_t bytes);
enum kvt_status rig_get_by(
	struct redis_rig *r, int handle, uint64_t n, uint64_t bytes, int64_t deadline_ns);
enum kvt_status rig_erase(struct redis_rig *r, int handle, uint64_t n);
enum kvt_status rig_ask_table(struct redis_rig *r, int handle, struct kvt_table_ask *ask);
enum kvt_status rig_flush(struct redis_rig *r, int handle);
/* Of the chunks first ... first + count - 1; SIZE_MAX: the probe failed. */
size_t rig_probe(struct redis_rig *r, int handle, uint64_t first, size_t count);
enum kvt_status rig_run(struct redis_rig *r, int handle, struct kvt_tier_request *request);
void rig_steps(struct redis_rig *r, int handle, unsigned count);
bool rig_knows(struct redis_rig *r, int handle, uint64_t n);
struct kvt_tier_stats rig_stats(struct redis_rig *r, int handle);

/* Key text of a chunk's part. */
const char *rig_name(struct redis_rig *r, uint64_t n, unsigned part);

#endif
