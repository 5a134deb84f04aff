/*
 * proxy.c - starts, drains and ends all loops together.
 */
#include "proxy/proxy.h"

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "base/peer.h"
#include "base/thread.h"
#include "proxy/loop.h"
#include "proxy/shared.h"
#include "server/listen.h"
#include "server/sockets.h"
#include "tls/tls.h"

struct kvw_proxy {
	struct kvw_shared shared;
	struct kvw_fleet *fleet;
	struct kvw_loop *loops;
	struct kvw_tls *tls; /* TLS for clients; NULL: plain HTTP */
	size_t loop_count, ready_count;
	char address[KVW_SOCKET_TEXT]; /* as bound */
	struct kvw_sockets *sockets;   /* inherited sockets, borrowed during the start */
};

/* Returns the cores of the cgroup v2 quota, rounded up; 0: no quota. */
static size_t cgroup_cores(void)
{
	FILE *file = fopen("/sys/fs/cgroup/cpu.max", "re");
	long long quota = 0, period = 0;
	size_t cores = 0;

	if (file == NULL)
		return 0;
	if (fscanf(file, "%lld %lld", &quota, &period) == 2 && quota > 0 && period > 0)
		cores = (size_t)((quota + period - 1) / period);
	fclose(file);
	return cores;
}

size_t kvw_proxy_default_loops(void)
{
	cpu_set_t set;
	size_t cores = 1, quota = cgroup_cores();

	if (sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 0)
		cores = (size_t)CPU_COUNT(&set);
	return quota > 0 && quota < cores ? quota : cores;
}

/*
 * Raises the limit of descriptors as far as the system allows. Where the limit is too low for
 * limits.connections, clients get half of the descriptors and workers the other half: a client
 * whose request can have no connection to a worker is better refused at once. Some descriptors
 * remain for files, probes and the admin address.
 */
static void share_descriptors(struct kvw_shared *shared)
{
	int64_t clients = shared->config->limits_connections, others = 1024;
	rlim_t wanted = 2 * (rlim_t)clients + (rlim_t)others;
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return;
	if (limit.rlim_cur < wanted) {
		limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
	if (limit.rlim_cur >= wanted)
		return;
	if (others > (int64_t)limit.rlim_cur / 4)
		others = (int64_t)limit.rlim_cur / 4;
	shared->connections_most = ((int64_t)limit.rlim_cur - others) / 2;
	kvw_warn("proxy",
		"descriptors are limited to %llu: at most %lld clients at once, not "
		"limits.connections=%lld, so that each can have a connection to a worker; raise "
		"the limit "
		"(ulimit -n, LimitNOFILE)",
		(unsigned long long)limit.rlim_cur, (long long)shared->connections_most,
		(long long)clients);
}

static enum kvw_err start_threads(struct kvw_proxy *proxy)
{
	enum kvw_err err = KVW_OK;

	for (size_t i = 0; i < proxy->loop_count && err == KVW_OK; i++) {
		struct kvw_loop *loop = &proxy->loops[i];

		if (kvw_thread_start(&loop->thread, kvw_loop_main, loop) == 0)
			loop->started = true;
		else
			err = KVW_ENOMEM;
	}
	return err;
}

/* Opens a listening socket. All loops' sockets share an address: if it has port 0, the first socket
 * chooses the port, and the others take that one. */
static enum kvw_err listen_for(struct kvw_proxy *proxy, size_t index, FILE *errors, int *fd)
{
	char bound[KVW_LISTEN_TEXT], why[384];
	enum kvw_err err = kvw_listen(index == 0 ? proxy->shared.config->listen : proxy->address,
		index == 0 ? KVW_LISTEN_FIRST : KVW_LISTEN_NEXT, fd, bound, why, sizeof(why));

	if (err != KVW_OK) {
		fprintf(errors, "kvway: listen: %s\n", why);
		return err;
	}
	memcpy(proxy->address, bound, sizeof(bound));
	kvw_sockets_note(proxy->sockets, KVW_SOCKET_CLIENTS, *fd);
	return KVW_OK;
}

/*
 * Takes the sockets of the process before this one, as long as there are any: a new socket would
 * lose the clients that wait there if this process failed before it is ready. The loop gets every
 * loop_count-th socket, or shares one with another loop where there are too few.
 */
static enum kvw_err adopt_for(struct kvw_proxy *proxy, const int *handed, size_t handed_count,
	size_t index, int *fds, size_t *count)
{
	*count = 0;
	for (size_t i = index; i < handed_count; i += proxy->loop_count)
		fds[(*count)++] = handed[i];
	if (*count > 0)
		return KVW_OK;
	fds[0] = fcntl(handed[index % handed_count], F_DUPFD_CLOEXEC, 0);
	*count = fds[0] >= 0;
	return fds[0] >= 0 ? KVW_OK : KVW_EIO;
}

/* Makes the loops, each with its sockets. */
static enum kvw_err init_proxy_loops(
	struct kvw_proxy *proxy, const struct kvw_proxy_deps *deps, FILE *errors)
{
	int handed[KVW_SOCKETS_MOST], fds[KVW_SOCKETS_MOST];
	size_t handed_count = kvw_sockets_adopt(deps->sockets, KVW_SOCKET_CLIENTS,
		deps->config->listen, handed, KVW_SOCKETS_MOST);
	enum kvw_err err = KVW_OK;

	if (handed_count > 0)
		kvw_socket_address(handed[0], proxy->address);
	for (size_t i = 0; i < deps->loop_count && err == KVW_OK; i++) {
		size_t count = 1;

		if (handed_count > 0)
			err = adopt_for(proxy, handed, handed_count, i, fds, &count);
		else
			err = listen_for(proxy, i, errors, &fds[0]);
		if (err != KVW_OK)
			break;
		/* The kernel does not drop a client that keeps its window shut;
		 * timeouts.client_write limits that. */
		for (size_t k = 0; k < count; k++)
			kvw_peer_watch(fds[k], deps->config->timeout_peer_gone_ms, false);
		err = kvw_loop_init(&proxy->loops[i], &proxy->shared, i, deps, fds, count);
		if (err != KVW_OK) {
			fprintf(errors, "kvway: cannot set up an event loop: %s\n",
				strerror(errno));
			break;
		}
		proxy->loops[i].tls = proxy->tls;
		proxy->ready_count++;
	}
	if (err == KVW_OK)
		return KVW_OK;
	for (size_t i = 0; i < handed_count; i++) /* sockets of loops that were not reached */
		if (i % proxy->loop_count > proxy->ready_count)
			close(handed[i]);
	return err;
}

static enum kvw_err create_client_tls(struct kvw_proxy *proxy, bool keys, FILE *errors)
{
	const struct kvw_config *config = proxy->shared.config;
	const struct kvw_tls_server_options options = {
		.certificate = config->tls_certificate,
		.key = config->tls_key,
		.more = (const char *const *)config->tls_certificates.items,
		.more_count = config->tls_certificates.count,
		.client_ca = config->tls_client_ca,
		.client_asked = config->tls_client_certificate == KVW_CLIENT_CERTIFICATE_ASKED,
		.wipe = keys,
		.only_1_3 = config->tls_min_version == KVW_TLS_1_3,
		.ciphers = config->tls_ciphers,
		.ciphersuites = config->tls_ciphersuites,
	};
	char why[256] = "";
	enum kvw_err err;

	if (config->tls_certificate[0] == '\0')
		return KVW_OK;
	err = kvw_tls_server_create(&options, why, sizeof(why), &proxy->tls);
	if (err == KVW_EINVAL)
		fprintf(errors, "kvway: tls: %s\n", why);
	if (err == KVW_OK)
		kvw_tls_watch_add(&proxy->fleet->certificates, proxy->tls, "listen");
	return err;
}

enum kvw_err kvw_proxy_start(
	const struct kvw_proxy_deps *deps, FILE *errors, struct kvw_proxy **out)
{
	struct kvw_proxy *proxy = aligned_alloc(64, (sizeof(*proxy) + 63) / 64 * 64);
	enum kvw_err err = KVW_ENOMEM;

	if (proxy == NULL)
		return KVW_ENOMEM;
	memset(proxy, 0, sizeof(*proxy));
	proxy->fleet = deps->fleet;
	proxy->sockets = deps->sockets;
	proxy->loop_count = deps->loop_count;
	proxy->loops = calloc(deps->loop_count, sizeof(proxy->loops[0]));
	if (proxy->loops == NULL ||
		kvw_shared_init(&proxy->shared, deps->config, deps->memory) != KVW_OK)
		goto fail;
	proxy->shared.ledger = deps->ledger;
	err = create_client_tls(proxy, deps->auth != NULL, errors);
	if (err != KVW_OK)
		goto fail;
	share_descriptors(&proxy->shared);
	err = init_proxy_loops(proxy, deps, errors);
	if (err != KVW_OK)
		goto fail;
	if (deps->before_loops != NULL)
		deps->before_loops(deps->before_loops_arg, proxy);
	err = start_threads(proxy);
	if (err != KVW_OK) {
		fprintf(errors, "kvway: cannot start a thread\n");
		goto fail;
	}
	*out = proxy;
	return KVW_OK;

fail:
	kvw_proxy_drain(proxy, KVW_DRAIN_NOW);
	kvw_proxy_join(proxy);
	kvw_proxy_destroy(proxy);
	return err;
}

void kvw_proxy_forget_worker(struct kvw_proxy *proxy, uint32_t worker)
{
	kvw_owners_forget(proxy->shared.owners, worker);
	kvw_admission_left(proxy->shared.admission, worker);
}

struct kvw_admission *kvw_proxy_admission(struct kvw_proxy *proxy)
{
	return proxy->shared.admission;
}

struct kvw_shared *kvw_proxy_shared(struct kvw_proxy *proxy)
{
	return &proxy->shared;
}

struct kvw_rate_table *kvw_proxy_rates(struct kvw_proxy *proxy)
{
	return proxy->shared.rates;
}

const char *kvw_proxy_address(const struct kvw_proxy *proxy)
{
	return proxy->address;
}

void kvw_proxy_drain(struct kvw_proxy *proxy, enum kvw_drain how)
{
	proxy->shared.drain = how;
	atomic_store(&proxy->shared.draining, true);
	for (size_t i = 0; i < proxy->ready_count; i++)
		kvw_loop_wake(&proxy->loops[i]);
}

void kvw_proxy_join(struct kvw_proxy *proxy)
{
	for (size_t i = 0; i < proxy->ready_count; i++) {
		if (proxy->loops[i].started)
			pthread_join(proxy->loops[i].thread, NULL);
		proxy->loops[i].started = false;
	}
}

void kvw_proxy_destroy(struct kvw_proxy *proxy)
{
	if (proxy == NULL)
		return;
	for (size_t i = 0; i < proxy->ready_count; i++)
		kvw_loop_finish(&proxy->loops[i]);
	kvw_shared_finish(&proxy->shared);
	free(proxy->loops);
	if (proxy->tls != NULL)
		kvw_tls_watch_remove(&proxy->fleet->certificates, proxy->tls);
	kvw_tls_destroy(proxy->tls);
	free(proxy);
}
