/*
 * keep.h - the directory as records (include/kvway/keep.h), for the next process.
 *
 *	QUOTA PIN ...      what operators have set
 *	SERVER CAPACITY .. servers, each with its cursor and then its declared capacities
 *	TOKENS PLACEMENT . the tokens of a chunk hash, before the first placement that has it
 *
 * The next process goes on with the servers' cursors: what a server reports to neither of the two
 * is a gap there, as it would be here. Heartbeats count from the moment of reading.
 *
 * Records are untrusted. A record that cannot be true ends the reading: what came before stays, and
 * counts as incomplete.
 *
 * Threads: the feed's.
 */
#ifndef KVW_COORDINATOR_KEEP_H
#define KVW_COORDINATOR_KEEP_H

#include "feeds/coordinator/directory.h"
#include "kvway/keep.h"

/* State of the reading between two records. Zeroed is ready. */
struct kvw_cd_recall {
	/* By their numbers in the records; owned, and borrowed from the directory. */
	struct kvw_cd_instance **servers;
	uint32_t count;
	bool failed;
	uint64_t placements;         /* read */
	char hash[KVW_CE_HASH_MOST]; /* of the tokens below */
	uint8_t hash_len;
	int64_t offset;
	uint32_t token_count;
	uint32_t tokens[KVW_CE_TOKENS_MOST];
};

enum kvw_err kvw_cd_keep(struct kvw_cd *cd, const struct kvw_keep_out *out) KVW_MUST_CHECK;

/* Reads a record; of another kind: does nothing. */
void kvw_cd_recall(struct kvw_cd *cd, struct kvw_cd_recall *recall, enum kvw_keep_kind kind,
	const uint8_t *record, size_t len, int64_t now_ns);
/* After the last record. all_came: none is missing. */
void kvw_cd_recalled(struct kvw_cd *cd, struct kvw_cd_recall *recall, bool all_came);

#endif
