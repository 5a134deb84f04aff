/*
 * loop_fixture.c - one event loop without its thread, turned by the test itself.
 */
#include "loop_fixture.h"
#include "fleet/fleet_internal.h"
#include "proxy/receive.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static int listen_on_loopback(uint16_t *port)
{
	struct sockaddr_in name = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(name);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	EXPECT(bind(fd, (struct sockaddr *)&name, sizeof(name)) == 0);
	EXPECT(listen(fd, 100) == 0);
	EXPECT(getsockname(fd, (struct sockaddr *)&name, &len) == 0);
	*port = ntohs(name.sin_port);
	return fd;
}

static struct kvw_config *make_config(const char *workers)
{
	struct kvw_config *config = NULL;
	char text[1024];
	int len = snprintf(text, sizeof(text),
		"routing: {strategy: roundrobin}\n"
		"log: {access: \"off\"}\n"
		"%s\n",
		workers);

	EXPECT(kvw_config_parse("test", text, (size_t)len, kvw_strategies, stderr, &config) == KVW_OK);
	return config;
}

enum kvw_err loop_fixture_loop(struct loop_fixture *f)
{
	const struct kvw_proxy_deps deps = {
		.config = f->config,
		.fleet = f->fleet,
		.strategy = f->strategy,
		.metrics = f->metrics,
		.access_log = f->access_log,
		.loop_turn_ns = &f->turn_ns,
	};
	uint16_t port;
	int fd = listen_on_loopback(&port);

	return kvw_loop_init(&f->loop, &f->shared, 0, &deps, &fd, 1);
}

static void begin(struct loop_fixture *f, const char *workers)
{
	const struct kvw_strategy_ops *ops = kvw_strategy_find("roundrobin");
	struct kvw_strategy_options options = {.seed = 1};

	f->config = make_config(workers);
	ck_assert_int_eq(ops->create(&options, &f->strategy), KVW_OK);
	ck_assert_int_eq(kvw_fleet_create(f->config, 1, stderr, &f->fleet), KVW_OK);
	ck_assert_int_eq(kvw_metrics_create(1, f->fleet, &f->metrics), KVW_OK);
	ck_assert_int_eq(kvw_access_log_create("off", 1, 4096, stderr, &f->access_log), KVW_OK);
	kvw_account_set_most(&f->memory, f->config->limits_body_memory);
	ck_assert_int_eq(kvw_shared_init(&f->shared, f->config, &f->memory), KVW_OK);
	ck_assert_int_eq(loop_fixture_loop(f), KVW_OK);
}

void loop_fixture_init(struct loop_fixture *f)
{
	char workers[128];
	uint16_t port;

	memset(f, 0, sizeof(*f));
	f->listener = listen_on_loopback(&port);
	(void)snprintf(workers, sizeof(workers), "workers: [{url: \"http://127.0.0.1:%u\", models: [tiny]}]", port);
	begin(f, workers);
}

void loop_fixture_init_divided(struct loop_fixture *f)
{
	char workers[512];
	uint16_t port, second;

	memset(f, 0, sizeof(*f));
	f->listener = listen_on_loopback(&port);
	f->second = listen_on_loopback(&second);
	(void)snprintf(workers, sizeof(workers),
		"workers:\n"
		"  - {url: \"http://127.0.0.1:%u\", group: a, models: [tiny]}\n"
		"  - {url: \"http://127.0.0.1:%u\", group: b, models: [tiny-next]}\n"
		"model_groups:\n"
		"  - {model: tiny, group: a, workers: [a]}\n"
		"  - {model: tiny, group: b, workers: [b], to: tiny-next}",
		port, second);
	begin(f, workers);
}

struct kvw_worker *loop_fixture_join(struct loop_fixture *f)
{
	struct kvw_worker_config config = f->config->workers[0];
	struct kvw_worker *worker = NULL;
	char url[64], why[128];
	uint16_t port;

	f->second = listen_on_loopback(&port);
	(void)snprintf(url, sizeof(url), "http://127.0.0.1:%u", port);
	config.url = url;
	config.models = (struct kvw_strings){NULL, 0};
	EXPECT(kvw_fleet_add(f->fleet, &config, why, sizeof(why), &worker) == KVW_OK);
	return worker;
}

void loop_fixture_bar(struct loop_fixture *f, size_t worker, bool barred)
{
	atomic_store(&f->fleet->workers[worker]->barred, barred ? KVW_BARRED_DRAINING : 0);
	kvw_fleet_changed(&f->fleet->changes);
}

void loop_fixture_finish(struct loop_fixture *f)
{
	kvw_loop_finish(&f->loop);
	kvw_shared_finish(&f->shared);
	kvw_access_log_destroy(f->access_log);
	kvw_metrics_destroy(f->metrics);
	kvw_fleet_destroy(f->fleet);
	f->strategy->ops->destroy(f->strategy);
	kvw_config_destroy(f->config);
	close(f->listener);
	if (f->second > 0)
		close(f->second);
}

void loop_fixture_offer(struct loop_fixture *f, int *peer)
{
	const struct sockaddr_in name = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int ends[2];

	EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	EXPECT(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0);
	*peer = ends[1];
	EXPECT(kvw_shared_connection_take(&f->shared));
	kvw_receive_client_take(&f->loop, ends[0], (const struct sockaddr *)&name);
}

struct kvw_client *loop_fixture_client(struct loop_fixture *f, int *peer)
{
	loop_fixture_offer(f, peer);
	EXPECT(!TAILQ_EMPTY(&f->loop.clients));
	return TAILQ_LAST(&f->loop.clients, kvw_client_list);
}

void loop_fixture_turn(struct loop_fixture *f)
{
	struct pollfd wait = {.fd = f->loop.sockets.fd, .events = POLLIN};

	while (kvw_io_set_busy(&f->loop.sockets) || poll(&wait, 1, 20) == 1)
		kvw_io_set_dispatch(&f->loop.sockets);
}

void loop_fixture_check_idle(struct loop_fixture *f)
{
	ck_assert_int_eq(kvw_metrics_gauge_sum(f->metrics, KVW_GAUGE_EXCHANGES), 0);
	ck_assert_uint_eq(kvw_account_bytes(&f->memory), 0);
	ck_assert_int_eq(kvw_metrics_gauge_sum(f->metrics, KVW_GAUGE_PENDING_BYTES), 0);
	ck_assert_uint_eq(f->loop.links.busy_total, 0);
	for (size_t i = 0; i < f->fleet->count; i++)
		ck_assert_uint_eq(kvw_load_inflight(&f->fleet->workers[i]->load), 0);
}

static ssize_t tapped_readv(struct kvw_io *io, const struct iovec *iov, int count)
{
	return readv(io->fd, iov, count);
}

static ssize_t tapped_writev(struct kvw_io *io, const struct iovec *iov, int count)
{
	struct taps *taps = io->state;
	ssize_t left = taps->takes[taps->next];
	ssize_t taken = 0;

	if (taps->next + 1 < taps->count)
		taps->next++;
	if (left <= 0) {
		errno = left == 0 ? EAGAIN : EPIPE;
		return -1;
	}
	for (int i = 0; i < count && left > 0; i++) {
		size_t n = iov[i].iov_len < (size_t)left ? iov[i].iov_len : (size_t)left;

		EXPECT(taps->len + n <= sizeof(taps->data));
		memcpy(taps->data + taps->len, iov[i].iov_base, n);
		taps->len += n;
		taken += (ssize_t)n;
		left -= (ssize_t)n;
	}
	return taken;
}

static void tapped_shutdown(struct kvw_io *io)
{
	(void)io;
}

static void tapped_end(struct kvw_io *io)
{
	(void)io;
}

void loop_fixture_tap(struct kvw_io *io, struct taps *taps)
{
	static const struct kvw_io_ops ops = {.readv = tapped_readv,
		.writev = tapped_writev,
		.shutdown = tapped_shutdown,
		.close = tapped_end};

	io->ops = &ops;
	io->state = taps;
}
