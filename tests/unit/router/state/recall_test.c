/*
 * recall_test.c - which workers a snapshot's records still mean when they are recalled.
 *
 * Between reading a snapshot and serving, a worker may lose its cache, or another one may get its slot: owners of
 * responses that the snapshot has for it then belong to none.
 */
#include <check.h>
#include <string.h>
#include <unistd.h>

#include "config/config.h"
#include "fleet/fleet.h"
#include "kvway/route.h"
#include "state/state.h"
#include "support.h"
#include "tests/unit/suite.h"

#define WORKERS 3
#define STARTED 1700000000.5

/* As state.c writes it; behind it the URL. */
struct worker_record {
	double started_s;
	uint32_t id, unused;
};

struct scene {
	struct kvw_config *config;
	struct kvw_fleet *fleet;
	struct kvw_state *state;
	uint32_t owners[8]; /* as recalled: the worker of each record, in this process */
	size_t count;
};

static void put_worker(struct kvw_state_writer *writer, uint32_t id, const char *url)
{
	struct worker_record record = {STARTED + id, id, 0};
	char bytes[128];

	memcpy(bytes, &record, sizeof(record));
	memcpy(bytes + sizeof(record), url, strlen(url));
	ck_assert_int_eq(kvw_state_write(writer, KVW_KEPT_WORKER, bytes, sizeof(record) + strlen(url)), KVW_OK);
}

/* A snapshot of another process, whose ids 7, 8 and 9 are our workers 0, 1 and 2; a response of each. */
static int snapshot(const struct kvw_fleet *fleet)
{
	static struct kvw_state_writer writer;
	int fd = memory_file();

	ck_assert_int_eq(kvw_state_write_begin(&writer, fd, 1 << 20, 1234567, 42), KVW_OK);
	for (uint32_t i = 0; i < WORKERS; i++)
		put_worker(&writer, 7 + i, fleet->workers[i]->url);
	for (uint32_t i = 0; i < WORKERS; i++)
		ck_assert_int_eq(kvw_state_write(&writer, KVW_KEPT_OWNER, &(uint32_t){7 + i}, 4), KVW_OK);
	ck_assert_int_eq(kvw_state_write_end(&writer), KVW_OK);
	return fd;
}

static enum kvw_err keep(void *arg, const struct kvw_keep_out *out)
{
	(void)arg;
	(void)out;
	return KVW_OK;
}

static void recall(void *arg, const struct kvw_keep_in *in)
{
	struct scene *scene = arg;
	enum kvw_keep_kind kind;
	const uint8_t *bytes;
	uint32_t id;
	size_t len;

	while (in->next(in->arg, &kind, &bytes, &len)) {
		ck_assert_int_eq(kind, KVW_KEPT_OWNER);
		ck_assert_uint_eq(len, sizeof(id));
		memcpy(&id, bytes, sizeof(id));
		scene->owners[scene->count++] = in->workers[id];
	}
}

static void scene_init(struct scene *scene)
{
	static const char text[] = "routing: {strategy: roundrobin}\nworkers:\n"
				   "  - url: http://127.0.0.1:9001\n"
				   "  - url: http://127.0.0.1:9002\n"
				   "  - url: http://127.0.0.1:9003\n";

	memset(scene, 0, sizeof(*scene));
	ck_assert_int_eq(
		kvw_config_parse("test", text, sizeof(text) - 1, kvw_strategies, stderr, &scene->config), KVW_OK);
	ck_assert_int_eq(kvw_fleet_create(scene->config, 1, stderr, &scene->fleet), KVW_OK);
	ck_assert_int_eq(kvw_state_create(scene->config, scene->fleet, snapshot(scene->fleet), 0, &scene->state),
		KVW_OK);
	ck_assert_int_eq(kvw_state_status(scene->state)->recalled, KVW_STATE_OK);
	ck_assert_uint_eq(kvw_state_status(scene->state)->workers, WORKERS);
}

static void scene_recall(struct scene *scene)
{
	const struct kvw_state_part part = {keep, recall, scene};

	kvw_state_recall_part(scene->state, &part);
	ck_assert_uint_eq(scene->count, WORKERS);
}

static void scene_finish(struct scene *scene)
{
	kvw_state_stop(scene->state);
	kvw_fleet_destroy(scene->fleet);
	kvw_config_destroy(scene->config);
}

START_TEST(owners_are_those_of_the_same_workers_under_their_new_ids)
{
	struct scene scene;

	scene_init(&scene);
	scene_recall(&scene);
	for (uint32_t i = 0; i < WORKERS; i++)
		ck_assert_uint_eq(scene.owners[i], i);
	scene_finish(&scene);
}
END_TEST

START_TEST(a_worker_that_lost_its_cache_since_owns_nothing)
{
	struct scene scene;

	scene_init(&scene);
	kvw_fleet_cache_lost(scene.fleet, scene.fleet->workers[1], "it was started again");
	scene_recall(&scene);
	ck_assert_uint_eq(scene.owners[0], 0);
	ck_assert_uint_eq(scene.owners[1], KVW_KEPT_GONE);
	ck_assert_uint_eq(scene.owners[2], 2);
	scene_finish(&scene);
}
END_TEST

/* Each use of a slot is another generation. */
START_TEST(a_slot_that_another_worker_got_since_owns_nothing)
{
	struct scene scene;

	scene_init(&scene);
	atomic_fetch_add(&scene.fleet->workers[2]->generation, 1);
	scene_recall(&scene);
	ck_assert_uint_eq(scene.owners[1], 1);
	ck_assert_uint_eq(scene.owners[2], KVW_KEPT_GONE);
	scene_finish(&scene);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("recall");

	tcase_add_test(tcase, owners_are_those_of_the_same_workers_under_their_new_ids);
	tcase_add_test(tcase, a_worker_that_lost_its_cache_since_owns_nothing);
	tcase_add_test(tcase, a_slot_that_another_worker_got_since_owns_nothing);
	return run_tcase("recall", tcase);
}
