/*
 * controller_test.c - the controller on its sockets: workers of all versions, nonsense, operators.
 */
#include <check.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include "base/clock.h"
#include "tests/unit/suite.h"
#include "wire/msgpack.h"
#include "rig.h"

#define PATIENCE_NS (20 * KVW_NS_PER_S)

static struct rig rig;

static void setup(void)
{
	rig_init(&rig);
}

static void start(void)
{
	char text[256] = "";

	ck_assert_msg(
		rig_start(&rig, "    chunk_size: 16\n", text, sizeof(text)) == KVW_OK, "%s", text);
	ck_assert_ptr_nonnull(rig.lmcache);
}

static void teardown(void)
{
	rig_finish(&rig);
}

static void *open_socket(int type, int port)
{
	const int off = 0, patience = 20000;
	void *socket = zmq_socket(rig.context, type);
	char url[64];

	snprintf(url, sizeof(url), "tcp://127.0.0.1:%d", port);
	zmq_setsockopt(socket, ZMQ_LINGER, &off, sizeof(off));
	zmq_setsockopt(socket, ZMQ_RCVTIMEO, &patience, sizeof(patience));
	ck_assert_int_eq(zmq_connect(socket, url), 0);
	return socket;
}

static void send_text(void *socket, const char *text, int flags)
{
	char copy[1024];

	snprintf(copy, sizeof(copy), "%s", text);
	for (char *at = copy; *at != '\0'; at++)
		if (*at == '\'')
			*at = '"';
	ck_assert_int_ge(zmq_send(socket, copy, strlen(copy), flags), 0);
}

/* One frame; its length. */
static int receive(void *socket, char *data, size_t size)
{
	int len = zmq_recv(socket, data, size, 0);

	ck_assert_msg(len >= 0, "%s", zmq_strerror(zmq_errno()));
	return len;
}

static bool contains(const char *data, int len, const char *text)
{
	return memmem(data, (size_t)len, text, strlen(text)) != NULL;
}

static uint32_t held(const uint64_t *keys, uint32_t count)
{
	static struct kvw_kvindex_hits hits;
	struct kvw_exact_chain chain = {KVW_REPORTER_LMCACHE, 0, 16, count, keys};

	kvw_exact_match(rig.exact, &chain, &hits);
	return hits.blocks[0];
}

static void wait_until_held(uint32_t expected)
{
	const uint64_t keys[] = {1, 2, 3};
	int64_t until = kvw_clock_ns() + PATIENCE_NS;

	while (held(keys, 3) != expected && kvw_clock_ns() < until)
		usleep(2000);
	ck_assert_uint_eq(held(keys, 3), expected);
}

static struct kvw_lmcache_stats stats_of(void)
{
	struct kvw_lmcache_stats stats;

	kvw_lmcache_stats(rig.lmcache, &stats);
	return stats;
}

static void wait_until_refused(enum kvw_lmcache_refusal refusal, uint64_t count)
{
	int64_t until = kvw_clock_ns() + PATIENCE_NS;

	while (stats_of().refused[refusal] < count && kvw_clock_ns() < until)
		usleep(2000);
	ck_assert_uint_eq(stats_of().refused[refusal], count);
}

static const char *const registers = "{'type':'RegisterMsg','instance_id':'i0','worker_id':0,"
				     "'ip':'127.0.0.1','port':%d,'peer_init_url':null}";
static const char *const admits =
	"{'type':'BatchedKVOperationMsg','instance_id':'i0','worker_id':0,"
	"'location':'LocalCPUBackend','operations':[{'op_type':'admit','key':1,'seq_num':0},"
	"{'op_type':'admit','key':2,'seq_num':1}]}";

static void register_worker(int command_port)
{
	void *dealer = open_socket(ZMQ_DEALER, rig.reply);
	char text[256], data[512], url[64];
	int len;

	snprintf(text, sizeof(text), registers, command_port);
	zmq_send(dealer, "", 0, ZMQ_SNDMORE);
	send_text(dealer, text, 0);
	ck_assert_int_eq(receive(dealer, data, sizeof(data)), 0);
	len = receive(dealer, data, sizeof(data));
	ck_assert(contains(data, len, "RegisterRetMsg"));
	snprintf(url, sizeof(url), "127.0.0.1:%d", rig.heartbeat); /* not 0.0.0.0 */
	ck_assert(contains(data, len, url));
	ck_assert(!contains(data, len, "tcp://"));
	zmq_close(dealer);
}

START_TEST(a_worker)
{
	void *push, *beat;
	char name[64], data[512];
	int64_t until = kvw_clock_ns() + PATIENCE_NS;

	start();
	register_worker(1);
	while (kvw_lmcache_instance_of(rig.lmcache, 0, name, sizeof(name)) == 0 &&
		kvw_clock_ns() < until)
		usleep(2000);
	ck_assert_str_eq(name, "i0");
	push = open_socket(ZMQ_PUSH, rig.pull);
	send_text(push, admits, ZMQ_SNDMORE); /* two messages in one multipart */
	send_text(push,
		"{'type':'BatchedKVOperationMsg','instance_id':'i0','worker_id':0,"
		"'location':'LocalCPUBackend','operations':[{'op_type':'admit','key':3,"
		"'seq_num':2}]}",
		0);
	wait_until_held(3);
	ck_assert_int_eq(kvw_exact_coverage(rig.exact, 0, KVW_REPORTER_LMCACHE), KVW_COVERAGE_FULL);
	beat = open_socket(ZMQ_REQ, rig.heartbeat); /* REQ and DEALER are served alike */
	send_text(beat,
		"{'type':'HeartbeatMsg','instance_id':'i0','worker_id':0,'ip':'127.0.0.1',"
		"'port':1,'peer_init_url':null}",
		0);
	ck_assert(contains(data, receive(beat, data, sizeof(data)), "HeartbeatRetMsg"));
	while (stats_of().keys != 3 && kvw_clock_ns() < until)
		usleep(2000);
	ck_assert_uint_eq(stats_of().keys, 3);
	ck_assert_uint_eq(kvw_lmcache_instance_of(rig.lmcache, 99, name, sizeof(name)), 0);
	zmq_close(beat);
	zmq_close(push);
}
END_TEST

/* Whatever comes, the next worker is served. */
START_TEST(nonsense)
{
	/* an array that says it has four billion members; a map cut off; no message at all */
	static const char *const frames[] = {
		"\xdd\xff\xff\xff\xff", "\x85\xa4type", "\xc1", "{", ""};
	static const size_t lengths[] = {5, 6, 1, 1, 0};
	void *push, *dealer;
	char data[512];

	start();
	push = open_socket(ZMQ_PUSH, rig.pull);
	dealer = open_socket(ZMQ_DEALER, rig.reply);
	for (size_t i = 0; i < 5; i++)
		zmq_send(push, frames[i], lengths[i], 0);
	for (size_t i = 0; i < 5; i++) {
		zmq_send(dealer, "", 0, ZMQ_SNDMORE);
		zmq_send(dealer, frames[i], lengths[i], 0);
		receive(dealer, data, sizeof(data));
		ck_assert(contains(data, receive(dealer, data, sizeof(data)), "ErrorMsg"));
	}
	wait_until_refused(KVW_LMCACHE_MALFORMED, 10);
	zmq_send(dealer, "x", 1, 0); /* no envelope */
	zmq_send(dealer, "", 0, ZMQ_SNDMORE);
	zmq_send(dealer, "a", 1, ZMQ_SNDMORE);
	zmq_send(dealer, "b", 1, 0);
	wait_until_refused(KVW_LMCACHE_ENVELOPE, 2);
	send_text(push, "{'type':'LookupMsg','event_id':'e','tokens':[]}", 0);
	wait_until_refused(KVW_LMCACHE_UNKNOWN_TYPE, 1);
	register_worker(1);
	send_text(push, admits, 0);
	wait_until_held(2);
	zmq_close(dealer);
	zmq_close(push);
}
END_TEST

/* A frame above the limit ends its connection, and nothing else. */
START_TEST(too_large)
{
	size_t size = KVW_LMC_MESSAGE_MAX + 1;
	char *large = calloc(1, size);
	void *bad, *push;

	start();
	register_worker(1);
	bad = open_socket(ZMQ_PUSH, rig.pull);
	zmq_send(bad, large, size, 0);
	push = open_socket(ZMQ_PUSH, rig.pull);
	send_text(push, admits, 0);
	wait_until_held(2);
	ck_assert_uint_eq(stats_of().refused[KVW_LMCACHE_MALFORMED], 0);
	zmq_close(push);
	zmq_close(bad);
	free(large);
}
END_TEST

/* --- wrong settings --- */

START_TEST(port_taken)
{
	struct sockaddr_in addr = {.sin_family = AF_INET,
		.sin_port = htons((uint16_t)rig.reply),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	char text[256] = "", expected[128];

	ck_assert_int_eq(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	ck_assert_int_eq(listen(fd, 1), 0);
	ck_assert_int_eq(rig_start(&rig, "", text, sizeof(text)), KVW_EINVAL);
	snprintf(expected, sizeof(expected),
		"kvaware.lmcache.reply: cannot listen on "
		"127.0.0.1:%d: the port is already taken\n",
		rig.reply);
	ck_assert_str_eq(text, expected);
	close(fd);
}
END_TEST

/* Only the engine itself can compute these hashes. */
START_TEST(hopeless_recipe)
{
	char text[512] = "";

	ck_assert_int_eq(rig_start(&rig, "    hash_seed: unset\n", text, sizeof(text)), KVW_EINVAL);
	ck_assert_msg(strncmp(text, "kvaware.lmcache.hash: ", 22) == 0, "%s", text);
	ck_assert_uint_gt(strlen(text), 30);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("controller");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_worker);
	tcase_add_test(tc, nonsense);
	tcase_add_test(tc, too_large);
	tcase_add_test(tc, port_taken);
	tcase_add_test(tc, hopeless_recipe);
	tcase_set_timeout(tc, 90);
	return run_tcase("lmcache controller", tc);
}
