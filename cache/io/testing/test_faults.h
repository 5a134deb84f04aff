/*
 * test_faults.h - a layer around another one that fails, corrupts and delays by rules.
 *
 * A rule names a fault, the calls and files that it strikes, its number and its chance. Rules are added and removed
 * while the layer works; the first rule that applies counts. Chance comes from a seed.
 *
 * Effects of each fault on an operation: an error of a write leaves none, a part or all of it written, as a device may;
 * a short transfer stops in its middle, at a multiple of the file's alignment; a flip changes one bit of a read's
 * result (the stored bytes stay right); a stall delays the result, and a read's bytes with it. Functions that are not
 * operations fail with KVT_EIO, or KVT_FULL for ENOSPC, and are stalled by waiting.
 */
#ifndef KVT_TEST_FAULTS_H
#define KVT_TEST_FAULTS_H

#include "kvtier/kvtier_io.h"
#include "io/testing/test_clock.h"

enum kvt_fault_kind {
	KVT_FAULT_ERROR, /* `error`, EIO if 0 */
	KVT_FAULT_SHORT,
	KVT_FAULT_FLIP,
	KVT_FAULT_STALL, /* for `delay_ns`; INT64_MAX: until the rules are cleared */
};

/* Mask of calls. */
#define KVT_ON_READ        (1u << 0)
#define KVT_ON_WRITE       (1u << 1)
#define KVT_ON_SYNC        (1u << 2)
#define KVT_ON_OPEN        (1u << 3)
#define KVT_ON_INFO        (1u << 4)
#define KVT_ON_RESERVE     (1u << 5)
#define KVT_ON_TRUNCATE    (1u << 6)
#define KVT_ON_REMOVE      (1u << 7)
#define KVT_ON_RENAME      (1u << 8)
#define KVT_ON_SYNC_FOLDER (1u << 9)
#define KVT_ON_LIST        (1u << 10)
#define KVT_ON_FREE_BYTES  (1u << 11)
#define KVT_ON_LOCK        (1u << 12)
#define KVT_ON_CREATE      (1u << 13) /* of the kvt_io itself */
#define KVT_ON_DATA        (KVT_ON_READ | KVT_ON_WRITE | KVT_ON_SYNC)
#define KVT_ON_ALL         0x3fffu /* a vanished folder, or a lost device */

struct kvt_fault_rule {
	enum kvt_fault_kind kind;
	uint32_t on;         /* mask of KVT_ON_ */
	const char *name;    /* beginning of the files' names; NULL: all files; borrowed as long as the rule */
	uint64_t skip;       /* matching calls that pass first */
	uint64_t count;      /* calls that are struck then; 0: all */
	double chance;       /* chance of each, 0: 1.0 */
	int error;           /* errno; 0: EIO */
	int64_t delay_ns;    /* duration of a stall */
};

struct kvt_faults;

/* `inner` and `clock` (NULL: the machine's) are borrowed. KVT_ENOMEM. */
enum kvt_status kvt_faults_create(struct kvt_io_layer inner, uint64_t seed,
	struct kvt_test_clock *clock, struct kvt_faults **out) KVT_MUST_CHECK;
void kvt_faults_destroy(struct kvt_faults *faults); /* NULL is allowed; its kvt_ios are gone */
struct kvt_io_layer kvt_faults_layer(struct kvt_faults *faults);

/* Adds a rule; any thread. KVT_FULL: there are 64 rules. */
enum kvt_status kvt_faults_add(
	struct kvt_faults *faults, const struct kvt_fault_rule *rule) KVT_MUST_CHECK;
void kvt_faults_clear(struct kvt_faults *faults); /* releases operations held back */

/* How often a fault of this kind struck. */
uint64_t kvt_faults_struck(struct kvt_faults *faults, enum kvt_fault_kind kind);

#endif
