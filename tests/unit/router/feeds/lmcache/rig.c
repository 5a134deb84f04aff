#include "rig.h"

#include <check.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

/* Ports that are free, all different: the kernel gives one twice once it is closed. */
static void free_ports(int *ports, int count)
{
	int fds[4];

	ck_assert_int_le(count, 4);
	for (int i = 0; i < count; i++) {
		struct sockaddr_in addr = {
			.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
		socklen_t len = sizeof(addr);

		fds[i] = socket(AF_INET, SOCK_STREAM, 0);
		ck_assert_int_eq(bind(fds[i], (struct sockaddr *)&addr, len), 0);
		ck_assert_int_eq(getsockname(fds[i], (struct sockaddr *)&addr, &len), 0);
		ports[i] = ntohs(addr.sin_port);
	}
	for (int i = 0; i < count; i++)
		close(fds[i]);
}

int rig_free_port(void)
{
	int port;

	free_ports(&port, 1);
	return port;
}

void rig_init(struct rig *rig)
{
	int ports[3];

	memset(rig, 0, sizeof(*rig));
	free_ports(ports, 3);
	rig->pull = ports[0];
	rig->reply = ports[1];
	rig->heartbeat = ports[2];
	rig->context = zmq_ctx_new();
}

enum kvw_err rig_start(struct rig *rig, const char *more, char *text, size_t size)
{
	struct kvw_strategy_options options = {.index_bytes = 4 << 20, .seed = 3};
	struct kvw_feed_deps deps = {.modules = {&kvw_lmcache_module}};
	char yaml[1024];
	FILE *errors;
	enum kvw_err err;

	snprintf(yaml, sizeof(yaml),
		"workers:\n  - url: http://127.0.0.1:9\n    lmcache_instance: i0\n"
		"routing:\n  strategy: kvaware\nkvaware:\n  lmcache:\n"
		"    pull: 127.0.0.1:%d\n    reply: 127.0.0.1:%d\n    heartbeat: 0.0.0.0:%d\n%s",
		rig->pull, rig->reply, rig->heartbeat, more);
	ck_assert_int_eq(
		kvw_config_parse("test", yaml, strlen(yaml), kvw_strategies, stderr, &rig->config),
		KVW_OK);
	ck_assert_int_eq(kvw_fleet_create(rig->config, 1, stderr, &rig->fleet), KVW_OK);
	ck_assert_int_eq(kvw_exact_create(&options, &rig->exact), KVW_OK);
	ck_assert_int_eq(kvw_kvspaces_create(&rig->spaces), KVW_OK);
	deps.config = rig->config;
	deps.fleet = rig->fleet;
	deps.exact = rig->exact;
	deps.spaces = rig->spaces;
	errors = fmemopen(text, size, "w");
	ck_assert_ptr_nonnull(errors);
	err = kvw_feed_start(&deps, errors, &rig->feed);
	fclose(errors);
	rig->lmcache = err == KVW_OK ? kvw_lmcache_of(rig->feed) : NULL;
	return err;
}

void rig_finish(struct rig *rig)
{
	zmq_ctx_term(rig->context);
	kvw_feed_stop(rig->feed);
	kvw_kvspaces_destroy(rig->spaces);
	kvw_exact_destroy(rig->exact);
	kvw_fleet_destroy(rig->fleet);
	kvw_config_destroy(rig->config);
}
