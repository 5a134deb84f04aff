/*
 * events_servers.c - see events_servers.h. Blocking sockets: the coordinator reads while the caller
 * writes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "bench/load/events_call.h"
#include "bench/load/events_servers.h"

#define ANSWER_MAX 4096
#define RANK       0x01000100u /* the only one */

struct server {
	int fd;
	uint64_t seq;
	bool asked; /* an answer is to come */
};

struct kvb_servers {
	struct server *items; /* owned, [count] */
	uint32_t count;
	uint64_t incarnation;
	struct kvb_buf body, head;
	bool first_batch, first_entry;
};

/* Reads the answer to the last request; true: it was a 200, and was applied if it is one to events. */
static bool read_answer(struct server *server)
{
	char answer[ANSWER_MAX];

	if (!server->asked)
		return true;
	server->asked = false;
	return kvb_call_answer(server->fd, answer, sizeof(answer)) &&
	       (strstr(answer, "\"applied\":") == NULL ||
		       strstr(answer, "\"duplicates\":0,\"stale\":0") != NULL);
}

static bool ask(struct kvb_servers *servers, uint32_t number, const char *path)
{
	struct server *server = &servers->items[number];

	kvb_buf_clear(&servers->head);
	kvb_buf_printf(&servers->head,
		"POST %s HTTP/1.1\r\nHost: coordinator\r\nContent-Type: application/json\r\n"
		"Content-Length: %zu\r\n\r\n",
		path, servers->body.len);
	if (!read_answer(server) ||
		!kvb_call_send(server->fd, servers->head.data, servers->head.len) ||
		!kvb_call_send(server->fd, servers->body.data, servers->body.len))
		return false;
	server->asked = true;
	return true;
}

static bool introduce(struct kvb_servers *servers, uint32_t number, uint64_t capacity)
{
	kvb_buf_clear(&servers->body);
	kvb_buf_printf(&servers->body,
		"{\"instance_id\":\"mp-%u\",\"ip\":\"127.0.0.1\",\"http_port\":8080,\"metadata\":{},"
		"\"p2p_advertised_url\":\"\",\"mq_port\":0}",
		number);
	if (!ask(servers, number, "/instances") || !read_answer(&servers->items[number]))
		return false;
	kvb_buf_clear(&servers->body);
	kvb_buf_printf(&servers->body,
		"{\"batches\":[{\"instance_id\":\"mp-%u\",\"incarnation\":%llu,\"seq\":%llu,"
		"\"event_type\":\"config\",\"tier\":\"l1\",\"backend\":\"dram\",\"entries\":[],"
		"\"shared\":false,\"ts\":0,\"capacity_bytes\":%llu,\"capacity_revision\":1}]}",
		number, (unsigned long long)servers->incarnation,
		(unsigned long long)++servers->items[number].seq, (unsigned long long)capacity);
	return ask(servers, number, "/events") && read_answer(&servers->items[number]);
}

struct kvb_servers *kvb_servers_create(
	const struct sockaddr_in *coordinator, uint32_t count, uint64_t capacity)
{
	struct kvb_servers *servers = calloc(1, sizeof(*servers));

	if (servers == NULL)
		return NULL;
	servers->items = calloc(count, sizeof(*servers->items));
	servers->incarnation = (uint64_t)time(NULL);
	for (uint32_t i = 0; servers->items != NULL && i < count; i++) {
		servers->count = i + 1;
		servers->items[i].fd = kvb_call_connect(coordinator);
		if (servers->items[i].fd < 0 || !introduce(servers, i, capacity)) {
			fprintf(stderr, "kvb-events: the coordinator does not take server mp-%u\n", i);
			kvb_servers_destroy(servers);
			return NULL;
		}
	}
	kvb_buf_clear(&servers->body);
	servers->first_batch = true;
	return servers;
}

void kvb_servers_destroy(struct kvb_servers *servers)
{
	if (servers == NULL)
		return;
	for (uint32_t i = 0; i < servers->count; i++)
		if (servers->items[i].fd >= 0)
			close(servers->items[i].fd);
	free(servers->items);
	kvb_buf_finish(&servers->body);
	kvb_buf_finish(&servers->head);
	free(servers);
}

void kvb_servers_begin(struct kvb_servers *servers, uint32_t server, const char *type)
{
	kvb_buf_printf(&servers->body,
		"%s{\"instance_id\":\"mp-%u\",\"incarnation\":%llu,\"seq\":%llu,\"event_type\":\"%s\","
		"\"tier\":\"l1\",\"backend\":\"dram\",\"shared\":false,\"ts\":%.6f,"
		"\"capacity_bytes\":0,\"capacity_revision\":0,\"entries\":[",
		servers->first_batch ? "{\"batches\":[" : ",", server,
		(unsigned long long)servers->incarnation,
		(unsigned long long)++servers->items[server].seq, type,
		(double)kvw_clock_wall_ns() / 1e9);
	servers->first_batch = false;
	servers->first_entry = true;
}

void kvb_servers_entry(struct kvb_servers *servers, uint64_t name, uint32_t bytes,
	const uint32_t *tokens, uint32_t count, uint64_t offset)
{
	kvb_buf_printf(&servers->body,
		"%s{\"key\":{\"chunk_hash_hex\":\"%016llx%016llx%016llx%016llx\",\"model_name\":"
		"\"bench\",\"kv_rank\":%u,\"object_group_id\":0,\"cache_salt\":\"\"},"
		"\"size_bytes\":%u,\"token_ids\":",
		servers->first_entry ? "" : ",", (unsigned long long)name,
		(unsigned long long)~name, (unsigned long long)name * 3,
		(unsigned long long)name * 5, RANK, bytes);
	kvb_buf_ids(&servers->body, tokens, count);
	if (tokens != NULL)
		kvb_buf_printf(&servers->body, ",\"token_offset\":%llu}", (unsigned long long)offset);
	else
		kvb_buf_text(&servers->body, ",\"token_offset\":-1}");
	servers->first_entry = false;
}

void kvb_servers_end(struct kvb_servers *servers)
{
	kvb_buf_text(&servers->body, "]}");
}

bool kvb_servers_post(struct kvb_servers *servers, uint32_t server)
{
	bool sent;

	kvb_buf_text(&servers->body, "]}");
	sent = ask(servers, server, "/events");
	kvb_buf_clear(&servers->body);
	servers->first_batch = true;
	return sent;
}

bool kvb_servers_wait(struct kvb_servers *servers)
{
	bool good = true;

	for (uint32_t i = 0; i < servers->count; i++)
		good = read_answer(&servers->items[i]) && good;
	return good;
}
