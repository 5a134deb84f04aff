/*
 * lease_table.c - finds leases by id, by key, by end time and by age.
 *
 * A lease is a record in one array; record numbers link it into a chain of the table of ids and one
 * of the table of keys, into a slot of a timer wheel and into the list by age. A slot of the wheel
 * spans a thousandth of the longest lease, so that one turn covers all possible ends, and a lease
 * ends at most one slot late: an early end would break the promise to the client, a late one would
 * not. A record keeps the absolute number of its slot, so that a late turn (after a jump of the
 * clock, or when no thread turned the wheel for a while) still ends only leases whose time is over.
 *
 * An id is 128 random bits as hexadecimal text; the table of ids is keyed by its first bits.
 */
#include "daemon/lease_table.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define SLOTS      1024
#define FINENESS   1000 /* slots of the wheel in the longest lease */
#define LEAST_TICK 1000000
#define NONE       UINT32_MAX
#define ID_BYTES   16

struct links {
	uint32_t next, prev;
};

/* One lease, or a free record. */
struct record {
	uint8_t id[ID_BYTES];
	struct kvt_key key;
	struct kvt_lease *hold;
	int64_t begun_ns, ends_ns;
	int64_t tick;      /* absolute number of the slot in which the lease ends */
	uint32_t next;     /* next in a chain of ids, or of free records */
	struct links slot; /* neighbours among the leases of the same slot */
	struct links age;
	struct links same; /* chain of keys */
};

struct kvt_lease_table {
	pthread_mutex_t lock; /* guards all */
	struct record *records;
	uint32_t most, taken, reserved;
	uint32_t free, fresh; /* records from `fresh` on were never used */
	uint32_t *heads, *key_heads;
	uint32_t mask; /* mask of both tables */
	uint32_t slots[SLOTS];
	int64_t tick_ns;
	int64_t cursor; /* all leases of slots before this one have ended */
	uint32_t oldest, newest;
};

/* --- life ------------------------------------------------------------------------------------- */

enum kvt_status kvt_lease_table_create(
	uint32_t most, uint64_t longest_ns, int64_t now_ns, struct kvt_lease_table **out)
{
	struct kvt_lease_table *t;
	uint64_t heads = 1;

	if (most == 0 || most > UINT32_MAX / 4 || longest_ns > INT64_MAX / 4)
		return KVT_EINVAL;
	t = calloc(1, sizeof(*t));
	if (t == NULL)
		return KVT_ENOMEM;
	while (heads < most)
		heads *= 2;
	/* the kernel provides each page at its first use */
	t->records = calloc(most, sizeof(*t->records));
	t->heads = malloc(heads * sizeof(*t->heads));
	t->key_heads = malloc(heads * sizeof(*t->key_heads));
	if (t->records == NULL || t->heads == NULL || t->key_heads == NULL) {
		free(t->records);
		free(t->heads);
		free(t->key_heads);
		free(t);
		return KVT_ENOMEM;
	}
	memset(t->heads, 0xff, heads * sizeof(*t->heads));
	memset(t->key_heads, 0xff, heads * sizeof(*t->key_heads));
	memset(t->slots, 0xff, sizeof(t->slots));
	t->mask = (uint32_t)heads - 1;
	t->most = most;
	t->free = t->oldest = t->newest = NONE;
	t->tick_ns = (int64_t)(longest_ns / FINENESS);
	if (t->tick_ns < LEAST_TICK)
		t->tick_ns = LEAST_TICK;
	t->cursor = now_ns / t->tick_ns;
	pthread_mutex_init(&t->lock, NULL);
	*out = t;
	return KVT_OK;
}

void kvt_lease_table_destroy(struct kvt_lease_table *t)
{
	if (t == NULL)
		return;
	pthread_mutex_destroy(&t->lock);
	free(t->records);
	free(t->heads);
	free(t->key_heads);
	free(t);
}

/* --- places ----------------------------------------------------------------------------------- */

bool kvt_lease_table_reserve(struct kvt_lease_table *t)
{
	bool room;

	pthread_mutex_lock(&t->lock);
	room = t->taken + t->reserved < t->most;
	t->reserved += room;
	pthread_mutex_unlock(&t->lock);
	return room;
}

void kvt_lease_table_unreserve(struct kvt_lease_table *t)
{
	pthread_mutex_lock(&t->lock);
	t->reserved--;
	pthread_mutex_unlock(&t->lock);
}

/* --- links; the lock is held
 * ------------------------------------------------------------------- */

static uint32_t *head_of(struct kvt_lease_table *t, const uint8_t id[ID_BYTES])
{
	uint32_t hash;

	memcpy(&hash, id, sizeof(hash));
	return &t->heads[hash & t->mask];
}

static uint32_t *key_head(struct kvt_lease_table *t, const struct kvt_key *key)
{
	uint32_t hash;

	memcpy(&hash, key->bytes, sizeof(hash));
	return &t->key_heads[hash & t->mask];
}

static uint32_t *slot_of(struct kvt_lease_table *t, int64_t tick)
{
	return &t->slots[tick % SLOTS];
}

static uint32_t take_record(struct kvt_lease_table *t)
{
	uint32_t number = t->free;

	if (number == NONE)
		return t->fresh++;
	t->free = t->records[number].next;
	return number;
}

static void link_record(struct kvt_lease_table *t, uint32_t number)
{
	struct record *r = &t->records[number];
	uint32_t *head = head_of(t, r->id), *slot = slot_of(t, r->tick);
	uint32_t *same = key_head(t, &r->key);

	r->next = *head;
	*head = number;
	r->slot = (struct links){.next = *slot, .prev = NONE};
	if (*slot != NONE)
		t->records[*slot].slot.prev = number;
	*slot = number;
	r->same = (struct links){.next = *same, .prev = NONE};
	if (*same != NONE)
		t->records[*same].same.prev = number;
	*same = number;
	r->age = (struct links){.next = NONE, .prev = t->newest};
	*(t->newest != NONE ? &t->records[t->newest].age.next : &t->oldest) = number;
	t->newest = number;
}

/* Every lease ends here: removes record `number` from all lists and returns its hold. */
static struct kvt_lease *end(struct kvt_lease_table *t, uint32_t number)
{
	struct record *r = &t->records[number];
	struct kvt_lease *hold = r->hold;
	uint32_t *at = head_of(t, r->id);

	while (*at != number)
		at = &t->records[*at].next;
	*at = r->next;
	*(r->slot.prev != NONE ? &t->records[r->slot.prev].slot.next : slot_of(t, r->tick)) =
		r->slot.next;
	if (r->slot.next != NONE)
		t->records[r->slot.next].slot.prev = r->slot.prev;
	*(r->age.prev != NONE ? &t->records[r->age.prev].age.next : &t->oldest) = r->age.next;
	*(r->age.next != NONE ? &t->records[r->age.next].age.prev : &t->newest) = r->age.prev;
	*(r->same.prev != NONE ? &t->records[r->same.prev].same.next : key_head(t, &r->key)) =
		r->same.next;
	if (r->same.next != NONE)
		t->records[r->same.next].same.prev = r->same.prev;
	memset(r->id, 0, sizeof(r->id));
	r->hold = NULL;
	r->next = t->free;
	t->free = number;
	t->taken--;
	return hold;
}

/* --- ids -------------------------------------------------------------------------------------- */

static void print_id(const uint8_t id[ID_BYTES], char text[KVT_LEASE_ID_BYTES])
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < ID_BYTES; i++) {
		text[2 * i] = digits[id[i] >> 4];
		text[2 * i + 1] = digits[id[i] & 15];
	}
	text[2 * ID_BYTES] = '\0';
}

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_id(struct kvw_slice text, uint8_t id[ID_BYTES])
{
	if (text.len != 2 * ID_BYTES)
		return false;
	for (size_t i = 0; i < ID_BYTES; i++) {
		int high = digit(text.data[2 * i]), low = digit(text.data[2 * i + 1]);

		if (high < 0 || low < 0)
			return false;
		id[i] = (uint8_t)(high << 4 | low);
	}
	return true;
}

/* --- leases ----------------------------------------------------------------------------------- */

enum kvt_status kvt_lease_table_add(struct kvt_lease_table *t, const struct kvt_key *key,
	struct kvt_lease *hold, int64_t now_ns, int64_t ends_ns, char id[KVT_LEASE_ID_BYTES])
{
	uint8_t random[ID_BYTES];
	struct record *r;
	uint32_t number;

	if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
		return KVT_EIO;
	pthread_mutex_lock(&t->lock);
	t->reserved--;
	t->taken++;
	number = take_record(t);
	r = &t->records[number];
	memcpy(r->id, random, sizeof(random));
	r->key = *key;
	r->hold = hold;
	r->begun_ns = now_ns;
	r->ends_ns = ends_ns;
	r->tick = (ends_ns + t->tick_ns - 1) / t->tick_ns;
	if (r->tick <= t->cursor)
		r->tick = t->cursor + 1;
	link_record(t, number);
	pthread_mutex_unlock(&t->lock);
	print_id(random, id);
	return KVT_OK;
}

struct kvt_lease *kvt_lease_table_take(struct kvt_lease_table *t, struct kvw_slice text)
{
	struct kvt_lease *hold = NULL;
	uint8_t id[ID_BYTES];
	uint32_t number;

	if (!read_id(text, id))
		return NULL;
	pthread_mutex_lock(&t->lock);
	number = *head_of(t, id);
	while (number != NONE && memcmp(t->records[number].id, id, sizeof(id)) != 0)
		number = t->records[number].next;
	if (number != NONE)
		hold = end(t, number);
	pthread_mutex_unlock(&t->lock);
	return hold;
}

/* Ends the leases of a slot whose time is over, while `holds` has room. False: some may be left. */
static bool expire_slot(struct kvt_lease_table *t, uint32_t *slot, int64_t tick,
	struct kvt_lease **holds, size_t most, size_t *count)
{
	uint32_t number = *slot, next;

	for (; number != NONE; number = next) {
		next = t->records[number].slot.next;
		if (t->records[number].tick > tick)
			continue;
		if (*count == most)
			return false;
		holds[(*count)++] = end(t, number);
	}
	return true;
}

size_t kvt_lease_table_expire(
	struct kvt_lease_table *t, int64_t now_ns, struct kvt_lease **holds, size_t most)
{
	int64_t tick = now_ns / t->tick_ns;
	size_t count = 0;

	pthread_mutex_lock(&t->lock);
	if (tick - t->cursor > SLOTS)
		t->cursor = tick - SLOTS; /* one whole turn of the wheel covers all slots */
	while (t->cursor < tick &&
		expire_slot(t, slot_of(t, t->cursor + 1), tick, holds, most, &count))
		t->cursor++;
	pthread_mutex_unlock(&t->lock);
	return count;
}

size_t kvt_lease_table_drain(struct kvt_lease_table *t, struct kvt_lease **holds, size_t most)
{
	size_t count = 0;

	pthread_mutex_lock(&t->lock);
	while (count < most && t->oldest != NONE)
		holds[count++] = end(t, t->oldest);
	pthread_mutex_unlock(&t->lock);
	return count;
}

/* --- eyes ------------------------------------------------------------------------------------- */

int64_t kvt_lease_table_due(struct kvt_lease_table *t)
{
	int64_t due;

	pthread_mutex_lock(&t->lock);
	due = t->taken != 0 ? (t->cursor + 1) * t->tick_ns : INT64_MAX;
	pthread_mutex_unlock(&t->lock);
	return due;
}

uint64_t kvt_lease_table_count(struct kvt_lease_table *t)
{
	uint64_t count;

	pthread_mutex_lock(&t->lock);
	count = t->taken;
	pthread_mutex_unlock(&t->lock);
	return count;
}

uint64_t kvt_lease_table_oldest(struct kvt_lease_table *t, int64_t now_ns)
{
	int64_t age = 0;

	pthread_mutex_lock(&t->lock);
	if (t->oldest != NONE)
		age = now_ns - t->records[t->oldest].begun_ns;
	pthread_mutex_unlock(&t->lock);
	return age > 0 ? (uint64_t)age : 0;
}

int64_t kvt_lease_table_last_end(struct kvt_lease_table *t)
{
	int64_t last_ns = 0;

	pthread_mutex_lock(&t->lock);
	for (uint32_t n = t->oldest; n != NONE; n = t->records[n].age.next)
		if (t->records[n].ends_ns > last_ns)
			last_ns = t->records[n].ends_ns;
	pthread_mutex_unlock(&t->lock);
	return last_ns;
}

uint32_t kvt_lease_table_count_of(struct kvt_lease_table *t, const struct kvt_key *key)
{
	uint32_t count = 0;

	pthread_mutex_lock(&t->lock);
	for (uint32_t n = *key_head(t, key); n != NONE; n = t->records[n].same.next)
		count += memcmp(&t->records[n].key, key, sizeof(*key)) == 0;
	pthread_mutex_unlock(&t->lock);
	return count;
}
