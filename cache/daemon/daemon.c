/*
 * daemon.c - runs kvtierd: makes its parts, waits for signals, takes the parts down.
 *
 * The main thread waits for signals, and gives the segment its name back when a client's runtime
 * has removed it; loops, the objects' threads and libkvtier's threads do the rest. Leased bytes
 * stay in the segment after the daemon's end; a side file says until when. It lies in the user's
 * own folder in /dev/shm, because that lasts exactly as long as the segment does.
 */
#include "daemon/daemon.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/notify.h"
#include "command/check_machine.h"
#include "daemon/server.h"
#include "memory/neighbours.h"
#include "memory/own_file.h"
#include "options/check_l2.h"

#define TEND_NS     (50 * KVW_NS_PER_MS)
#define PATH_BYTES  4096
#define OTHER_FILES 256 /* open files of the process besides its connections */

/* All parts of the daemon, in the order in which they are made. */
struct daemon {
	struct kvt_daemon_config
		/* the configuration with automatic values replaced by numbers. Texts are
		 * borrowed. */
		config;
	struct kvt_surroundings surroundings;
	struct kvt_segment_file *segment;
	struct kvt_objects *objects;
	struct kvt_server *server;
};

static void log_line(void *self, uint32_t level, const char *line)
{
	static const enum kvw_log_level levels[] = {[KVT_LOG_DEBUG] = KVW_LOG_DEBUG,
		[KVT_LOG_INFO] = KVW_LOG_INFO,
		[KVT_LOG_WARN] = KVW_LOG_WARN,
		[KVT_LOG_ERROR] = KVW_LOG_ERROR};

	(void)self;
	kvw_log(levels[level <= KVT_LOG_ERROR ? level : KVT_LOG_ERROR], "cache", "%s", line);
}

uint64_t kvt_daemon_segment_bytes(const struct kvt_daemon_config *config, char *why)
{
	struct kvt_neighbours neighbours;
	struct kvt_machine machine;
	char text[300];
	struct stat there;

	if (config->segment_bytes != 0) {
		snprintf(why, KVT_REASON_BYTES, "as configured");
		return config->segment_bytes;
	}
	snprintf(text, sizeof(text), "/dev/shm/.%s.kvtierd", config->segment_name);
	if (stat(text, &there) == 0 && S_ISREG(there.st_mode) && there.st_size > 0) {
		snprintf(why, KVT_REASON_BYTES, "of the segment that is there");
		return (uint64_t)there.st_size;
	}
	kvt_machine_read("", NULL, &machine);
	kvt_neighbours_look(&neighbours, NULL, 1, &machine);
	kvt_neighbours_leave(&neighbours);
	snprintf(text, sizeof(text), "shm:%s", config->segment_name);
	return kvt_size_l1(&machine, text, why);
}

size_t kvt_daemon_check(const struct kvt_daemon_config *config, uint64_t bytes)
{
	struct kvt_machine machine;
	struct stat st = {0};
	size_t mistakes = 0;
	char path[300];

	kvt_machine_read("", NULL, &machine);
	snprintf(path, sizeof(path), "/dev/shm/.%s.kvtierd", config->segment_name);
	if (lstat(path, &st) == 0 && st.st_size != 0 && (uint64_t)st.st_size != bytes) {
		fprintf(stderr,
			"segment.size: found %llu bytes, but the segment that is there has %llu: "
			"to remove it, rm /dev/shm/%s %s\n",
			(unsigned long long)bytes, (unsigned long long)st.st_size,
			config->segment_name, path);
		mistakes++;
	}
	if (bytes % (uint64_t)sysconf(_SC_PAGESIZE) != 0) {
		fprintf(stderr, "segment.size: found %llu bytes, expected whole pages of %ld\n",
			(unsigned long long)bytes, sysconf(_SC_PAGESIZE));
		mistakes++;
	}
	mistakes += kvt_check_memory(
		"segment.size", "shm:", bytes, (uint64_t)st.st_blocks * 512, 1, &machine);
	mistakes += kvt_check_numa("cache.", &config->cache, &machine);
	if (config->cache.nvme_path != NULL && config->cache.nvme_path[0] != '\0')
		mistakes += kvt_check_store("cache.", &config->cache, 1, &machine);
	return mistakes + kvt_check_l2(&config->cache, "cache.");
}

/* --- beginning -------------------------------------------------------------------------------- */

static bool open_segment(struct daemon *d)
{
	struct kvt_daemon_config *config = &d->config;
	struct kvt_segment_options options = {.name = config->segment_name,
		.mode = config->segment_access,
		.longest_lease_ns = config->lease_ttl_max_ns + config->lease_grace_ns,
		.surroundings = &d->surroundings};
	char why[KVT_REASON_BYTES] = "", own[64], side[400];

	options.bytes = kvt_daemon_segment_bytes(config, why);
	if (options.bytes == 0) {
		kvw_error("daemon", "segment.size: %s", why);
		return false;
	}
	kvw_info("daemon", "segment name=%s bytes=%llu why=\"%s\"", config->segment_name,
		(unsigned long long)options.bytes, why);
	config->segment_bytes = options.bytes;
	if (kvt_own_folder("/dev/shm", own, sizeof(own), why)) {
		snprintf(side, sizeof(side), "%s/%s.leases", own, config->segment_name);
		options.side_path = side;
		if (kvt_segment_open(&options, why, &d->segment) == KVT_OK)
			return true;
	}
	kvw_error("daemon", "segment: %s", why);
	return false;
}

/* Makes the folder of the NVMe tier, which holds the catalog, too. False: it cannot be made. */
static bool make_folder(const char *path)
{
	char part[PATH_BYTES];

	if (snprintf(part, sizeof(part), "%s", path) >= (int)sizeof(part))
		return false;
	for (char *c = part + 1; *c != '\0'; c++) {
		if (*c != '/')
			continue;
		*c = '\0';
		if (mkdir(part, 0755) != 0 && errno != EEXIST)
			return false;
		*c = '/';
	}
	return mkdir(part, 0700) == 0 || errno == EEXIST;
}

static bool create_objects(struct daemon *d)
{
	const struct kvt_daemon_config *config = &d->config;
	const char *nvme = config->cache.nvme_path;
	struct kvt_objects_options options = {.cache = &config->cache,
		.segment = d->segment,
		.surroundings = &d->surroundings,
		.lease_ttl_max_ns = config->lease_ttl_max_ns,
		.lease_grace_ns = config->lease_grace_ns,
		.leases_max = config->leases,
		.object_max_bytes = config->object_bytes,
		.memory_only_bytes = config->memory_object_bytes,
		.limits = config->buckets,
		.limit_count = config->bucket_count};
	char why[KVT_REASON_BYTES] = "", catalog[PATH_BYTES + 32], generations[PATH_BYTES + 32];

	if (nvme != NULL && nvme[0] != '\0') {
		if (!make_folder(nvme)) {
			kvw_error("daemon", "cache.nvme.path: %s: %s", nvme, strerror(errno));
			return false;
		}
		snprintf(catalog, sizeof(catalog), "%s/kvtierd-catalog", nvme);
		options.catalog_path = catalog;
		snprintf(generations, sizeof(generations), "%s/kvtierd-generations", nvme);
		options.generations_path = generations;
	}
	if (kvt_objects_create(&options, why, &d->objects) == KVT_OK)
		return true;
	kvw_error("daemon", "objects: %s", why);
	return false;
}

/* Raises the soft limit of open files if the connections need more, as far as is allowed. */
static void raise_file_limit(uint32_t connections)
{
	rlim_t wanted = (rlim_t)connections + OTHER_FILES;
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted)
		return;
	limit.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur < wanted)
		kvw_warn("daemon", "open files are limited to %llu, limits.connections is %u",
			(unsigned long long)limit.rlim_cur, connections);
}

static bool start_server(struct daemon *d)
{
	char why[KVT_REASON_BYTES];

	raise_file_limit(d->config.connections);
	if (kvt_server_start(&(struct kvt_server_options){&d->config, d->objects, d->segment}, why,
		    &d->server) != KVT_OK) {
		kvw_error("daemon", "%s", why);
		return false;
	}
	kvw_info("daemon", "serving listen=%s admin=%s version=%s", kvt_server_listen(d->server),
		d->config.admin[0] != '\0' ? kvt_server_admin(d->server) : "none", KVW_VERSION);
	return true;
}

/* --- life ------------------------------------------------------------------------------------- */

static void block_signals(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGINT);
	/* sent when a terminal closes; the daemon ends, since it has no configuration to read
	 * again */
	sigaddset(set, SIGHUP);
	(void)pthread_sigmask(SIG_BLOCK, set, NULL);
	(void)signal(SIGPIPE, SIG_IGN);
}

static void wait_for_end(struct daemon *d, const sigset_t *set)
{
	const struct timespec tend = {.tv_nsec = TEND_NS};
	int number;

	do {
		number = sigtimedwait(set, NULL, &tend);
		if (kvt_segment_tend(d->segment))
			kvw_info("daemon", "segment's name was gone and is given back name=%s",
				d->config.segment_name);
	} while (number != SIGTERM && number != SIGINT);
	kvw_notify("STOPPING=1");
	kvw_info("daemon", "ending signal=%s", number == SIGTERM ? "TERM" : "INT");
}

bool kvt_daemon_run(const struct kvt_daemon_config *config)
{
	struct daemon d = {.config = *config};
	sigset_t signals;
	bool good;

	kvw_log_set_level((enum kvw_log_level)config->log_level);
	block_signals(&signals);
	d.config.cache.log = log_line;
	kvt_surroundings_init(&d.surroundings, &d.config.cache);
	good = open_segment(&d) && create_objects(&d) && start_server(&d);
	if (good) {
		kvw_notify("READY=1");
		wait_for_end(&d, &signals);
	}
	kvt_server_destroy(d.server);
	if (d.objects != NULL)
		kvt_objects_destroy(d.objects);
	kvt_segment_close(d.segment);
	kvw_info("daemon", "ended");
	return good;
}
