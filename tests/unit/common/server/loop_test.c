/*
 * loop_test.c - the end of an event loop while another thread posts to it. Wakes are slow here: write() is
 * wrapped.
 */
#include <check.h>
#include <unistd.h>

#include "server/loop.h"
#include "tests/unit/suite.h"

static struct kvw_server server;
static struct kvw_server_loop loop;
static _Thread_local bool slow;
static _Atomic uint32_t begun, good, delivered;
static _Atomic bool joined;

ssize_t __real_write(int fd, const void *data, size_t len);
ssize_t __wrap_write(int fd, const void *data, size_t len);

ssize_t __wrap_write(int fd, const void *data, size_t len)
{
	ssize_t n;

	if (slow) {
		begun++;
		while (!joined)
			usleep(1000);
		usleep(200000); /* what frees the loop has to wait for this thread */
	}
	n = __real_write(fd, data, len);
	good += slow && n == (ssize_t)len;
	return n;
}

static void deliver(struct kvw_mail *mail, struct kvw_server_loop *to)
{
	(void)mail;
	(void)to;
	delivered++;
}

static void nothing(struct kvw_server_loop *of)
{
	(void)of;
}

static void *post_slowly(void *arg)
{
	slow = true;
	kvw_server_loop_post(&loop, arg);
	return NULL;
}

START_TEST(a_loop_does_not_end_under_a_thread_that_wakes_it)
{
	static const struct kvw_server_loop_ops ops = {
		.drain = nothing, .cut = nothing, .turned = nothing};
	struct kvw_mail mail = {.deliver = deliver};
	pthread_t poster;

	ck_assert_int_eq(kvw_server_loop_init(&loop, &server, &ops, -1), KVW_OK);
	ck_assert_int_eq(kvw_server_loop_start(&loop, "test"), KVW_OK);
	ck_assert_int_eq(pthread_create(&poster, NULL, post_slowly, &mail), 0);
	while (begun == 0)
		usleep(1000);
	atomic_store(&server.draining, true);
	kvw_server_loop_wake(&loop); /* the mail is taken, too */
	kvw_server_loop_join(&loop);
	ck_assert_uint_eq(delivered, 1);
	ck_assert_uint_eq(good, 0);
	joined = true;
	kvw_server_loop_finish(&loop);
	pthread_join(poster, NULL);
	ck_assert_uint_eq(good, 1); /* its descriptor was still there */
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("loop");

	tcase_add_test(tc, a_loop_does_not_end_under_a_thread_that_wakes_it);
	return run_tcase("server loop", tc);
}
