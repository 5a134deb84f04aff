/*
 * server_test.c - the control plane over objects that do what the test wants: what is answered, and in
 * which order.
 */
#include "server_scene.h"
#include "tests/unit/suite.h"

/* --- the life of an object -------------------------------------------------------------------- */

START_TEST(put_lease_release)
{
	static const size_t sizes[] = {1, 2076, 99999, 100001, 1 << 20, 7000001};
	struct scene s;
	char target[200], *heard;
	int fd;

	scene_init(&s, NULL);
	fd = dial(kvt_server_listen(s.server));
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		char *bytes = pattern(sizes[i], (unsigned)i);

		snprintf(target, sizeof(target), "/v1/kv/b/k%%2F%zu", i);
		put(fd, target, bytes, sizes[i]);
		EXPECT(fd, "200", "Content-Length: 0\r\n\r\n");
		put(fd, target, bytes, sizes[i]);
		EXPECT(fd, "409", "Content-Length: 0\r\n\r\n");
		bytes[sizes[i] - 1] ^= 1;
		put(fd, target, bytes, sizes[i]);
		EXPECT(fd, "200", "Content-Length: 0\r\n\r\n");
		strcat(target, "/leases?timeout_ms=5000&ttl_s=30.0");
		ask(fd, "POST", target);
		heard = hear(fd);
		ck_assert(strstr(heard, "HTTP/1.1 200 OK\r\n") == heard);
		ck_assert(strstr(heard, "\r\nContent-Type: application/json\r\n") != NULL);
		check_lease(&s, strstr(heard, "\r\n\r\n"), bytes, sizes[i]);
		free(heard);
		free(bytes);
		snprintf(target, sizeof(target), "/v1/leases/lease-%zu/release", i + 1);
		ask(fd, "POST", target);
		EXPECT(fd, "200", "Content-Length: 0\r\n\r\n");
		ask(fd, "POST", target);
		EXPECT(fd, "404", "no lease of this id");
	}
	ck_assert_uint_eq(fake_leases(s.objects), 0);
	ck_assert_uint_eq(s.objects->last_ttl_ns, 30 * KVW_NS_PER_S);
	ck_assert_uint_eq(s.objects->last_timeout_ns, 5 * KVW_NS_PER_S);
	close(fd);
	scene_finish(&s);
}
END_TEST

START_TEST(both_spellings_are_one_key)
{
	struct scene s;
	int fd;

	scene_init(&s, NULL);
	fd = dial(kvt_server_listen(s.server));
	put(fd, "/v1/kv/lmcache/a%40b%3ac%2f@1", "x", 1);
	EXPECT(fd, "200", "");
	put(fd, "/v1/kv/lmcache/a@b:c%2F%401", "x", 1);
	EXPECT(fd, "409", "");
	ask(fd, "POST", "/v1/kv/%6cmcache/a@b:c%2F@1/leases");
	EXPECT(fd, "200", "\"offsets\":[{\"offset\":");
	close(fd);
	ck_assert_uint_eq(fake_leases(s.objects), 1);
	scene_finish(&s);
}
END_TEST

static struct kvt_tenant last_tenant(struct kvt_objects *o, bool *named)
{
	struct kvt_tenant tenant;

	pthread_mutex_lock(&o->lock);
	tenant = o->last_tenant;
	*named = o->last_named;
	pthread_mutex_unlock(&o->lock);
	return tenant;
}

START_TEST(a_client_names_a_tenant)
{
	static const char request[] = "PUT /v1/kv/b/k HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n"
				      "x-kvtier-tenant: 000102030405060708090a0B0C0d0e0f\r\n\r\nx";
	struct kvt_tenant tenant;
	struct scene s;
	bool named;
	int fd;

	scene_init(&s, "{}");
	fd = dial(kvt_server_listen(s.server));
	say(fd, request);
	EXPECT(fd, "200", "");
	tenant = last_tenant(s.objects, &named);
	ck_assert(named);
	for (uint8_t i = 0; i < 16; i++)
		ck_assert_uint_eq(tenant.bytes[i], i);
	put(fd, "/v1/kv/b/other", "x", 1);
	EXPECT(fd, "200", "");
	(void)last_tenant(s.objects, &named);
	ck_assert(!named);
	close(fd);
	fd = dial(kvt_server_admin(s.server));
	ask(fd, "DELETE", "/v1/kv/b?tenant=ff0102030405060708090a0b0c0d0e0f");
	EXPECT(fd, "200", "");
	tenant = last_tenant(s.objects, &named);
	ck_assert_uint_eq(tenant.bytes[0], 0xff);
	close(fd);
	scene_finish(&s);
}
END_TEST

/* At `listen`: what engines ask about generations, and change. */
START_TEST(an_engine_asks_for_generations)
{
	static const char id[] = "abababababababababababababababab";
	struct kvt_tenant tenant;
	struct scene s;
	bool named;
	int fd;

	scene_init(&s, "{}");
	fd = dial(kvt_server_listen(s.server));
	ask(fd, "GET", "/v1/generations");
	EXPECT(fd, "200",
		"{\"id\":\"abababababababababababababababab\",\"more\":false,\"sum\":3,"
		"\"changes\":[[7,3]]}");
	ask(fd, "GET", "/v1/generations?after=3");
	EXPECT(fd, "200", "\"changes\":[]}");
	ask(fd, "POST", "/v1/generations?slot=5&after=2&tenant=ff0102030405060708090a0b0c0d0e0f");
	EXPECT(fd, "200", id);
	tenant = last_tenant(s.objects, &named);
	ck_assert(named && tenant.bytes[0] == 0xff);
	ck_assert_uint_eq(s.objects->last_slot, 5);
	atomic_store(&s.objects->erase_status, KVT_EIO);
	ask(fd, "POST", "/v1/generations?slot=5");
	EXPECT(fd, "503", "not changed");
	atomic_store(&s.objects->erase_status, 0);
	ask(fd, "POST", "/v1/generations");
	EXPECT(fd, "400", "expected slot=");
	ask(fd, "GET", "/v1/generations?id=12");
	EXPECT(fd, "400", "id: expected 32 hex digits");
	close(fd);
	scene_finish(&s);
}
END_TEST

START_TEST(wishes_are_cut)
{
	struct scene s;
	int fd;

	scene_init(&s, "lease: {ttl: 7s, ttl_max: 60s, wait: 300ms, wait_max: 2s}");
	fd = dial(kvt_server_listen(s.server));
	ask(fd, "POST", "/v1/kv/b/k/leases?timeout_ms=99999&ttl_s=1e6");
	EXPECT(fd, "404", "not found");
	ck_assert_uint_eq(s.objects->last_ttl_ns, 60 * KVW_NS_PER_S);
	ck_assert_uint_eq(s.objects->last_timeout_ns, 2 * KVW_NS_PER_S);
	ask(fd, "POST", "/v1/kv/b/k/leases");
	EXPECT(fd, "404", "not found");
	ck_assert_uint_eq(s.objects->last_ttl_ns, 7 * KVW_NS_PER_S);
	ck_assert_uint_eq(s.objects->last_timeout_ns, 300 * KVW_NS_PER_MS);
	ask(fd, "POST", "/v1/kv/b/k/leases?ttl_s=0.25&timeout_ms=0");
	EXPECT(fd, "404", "not found");
	ck_assert_uint_eq(s.objects->last_ttl_ns, 250 * KVW_NS_PER_MS);
	ck_assert_uint_eq(s.objects->last_timeout_ns, 0);
	atomic_store(&s.objects->lease_delay_ns, (uint64_t)30 * KVW_NS_PER_MS);
	ask(fd, "POST", "/v1/kv/b/k/leases?timeout_ms=20");
	EXPECT(fd, "504", "not within timeout_ms");
	close(fd);
	scene_finish(&s);
}
END_TEST

/* --- what is refused -------------------------------------------------------------------------- */

static const struct {
	const char *request, *status, *part;
	bool closes;
} refusals[] = {
	{"GET / HTTP/1.1\r\nHost: h\r\n\r\n", "404", "no such path", false},
	{"GET /v1/kv/b/k HTTP/1.1\r\nHost: h\r\n\r\n", "405", "Allow: PUT\r\n", false},
	{"POST /v1/kv/b/k HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n", "405",
		"Allow: PUT\r\n", false},
	{"PATCH /health HTTP/1.1\r\nHost: h\r\n\r\n", "405", "Allow: GET\r\n", false},
	{"BREW /health HTTP/1.1\r\nHost: h\r\n\r\n", "501", "error", true},
	{"TRACE /health HTTP/1.1\r\nHost: h\r\n\r\n", "405", "Allow: ", true},
	{"GET /health HTTP/1.1\r\n\r\n", "400", "error", true},
	{"GET /health HTTP/1.1\nHost: h\n\n", "400", "error", true},
	{"GET /health HTTP/2.0\r\nHost: h\r\n\r\n", "505", "error", true},
	{"GET /v1/buckets HTTP/1.1\r\nHost: h\r\n\r\n", "404", "admin address", false},
	{"GET /v1/kv/b HTTP/1.1\r\nHost: h\r\n\r\n", "404", "admin address", false},
	{"DELETE /v1/kv/b/k HTTP/1.1\r\nHost: h\r\n\r\n", "403", "client_erase", false},
	{"DELETE /v1/kv/b HTTP/1.1\r\nHost: h\r\n\r\n", "403", "client_erase", false},
	{"PUT /v1/kv/b/k HTTP/1.1\r\nHost: h\r\n\r\n", "411", "expected Content-Length", false},
	{"PUT /v1/kv/b/k HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nX-Kvtier-Tenant: me\r\n\r\nx",
		"400", "X-Kvtier-Tenant: expected 32 hex digits", false},
	{"PUT /v1/kv/b/k HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"
	 "0\r\n\r\n",
		"411", "chunked", true},
	{"PUT /v1/kv/b/k HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n", "400",
		"at least one byte", false},
	{"PUT /v1/kv/b/k HTTP/1.1\r\nHost: h\r\nContent-Length: 1073741825\r\n\r\nxyz", "413",
		"limits.object", true},
	{"PUT /v1/kv/b/k HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n", "400", "error", true},
	{"PUT /v1/kv/b/k HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999999\r\n\r\n",
		"400", "error", true},
	{"PUT /v1/kv/b/k HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
		"400", "error", true},
	{"PUT /v1/kv/b/k HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: "
	 "chunked\r\n\r\n",
		"400", "error", true},
	{"PUT /v1/kv//k HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc", "400",
		"the bucket is empty", false},
	{"PUT /v1/kv/b/a/c HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc", "400", "%2F",
		false},
	{"POST /v1/kv/b/k/leases?ttl_s=-1 HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n", "400",
		"ttl_s", false},
	{"POST /v1/kv/b/k/leases HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
	 "chunked\r\n\r\n0\r\n\r\n",
		"413", "no body", true},
	{"POST /v1/kv/b/k/leases HTTP/1.1\r\nHost: h\r\nContent-Length: 70000\r\n\r\n", "413",
		"no body", true},
	{"POST /v1/kv/b/k/leases HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc", "404",
		"not found", false},
	{"GET /health HTTP/1.0\r\n\r\n", "200", "Connection: close", true},
	{"GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", "200", "Connection: keep-alive",
		false},
	{"GET /health HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", "200", "Connection: close",
		true},
};

START_TEST(a_refusal_says_why)
{
	struct scene s;
	int fd;

	scene_init(&s, NULL);
	fd = dial(kvt_server_listen(s.server));
	say(fd, refusals[_i].request);
	EXPECT(fd, "", refusals[_i].part);
	close(fd);
	fd = dial(kvt_server_listen(s.server));
	say(fd, refusals[_i].request);
	{
		char *heard = hear(fd);

		ck_assert_msg(strncmp(heard + 9, refusals[_i].status, 3) == 0, "%s", heard);
		free(heard);
	}
	if (refusals[_i].closes) {
		expect_close(fd);
	} else { /* and the connection goes on in step */
		ask(fd, "GET", "/health");
		EXPECT(fd, "200", "\"ok\"");
		close(fd);
	}
	scene_finish(&s);
}
END_TEST

START_TEST(a_head_request_gets_no_body)
{
	struct scene s;
	char text[1024] = "";
	size_t have = 0;
	ssize_t n;
	int fd;

	scene_init(&s, NULL);
	fd = dial(kvt_server_listen(s.server));
	say(fd, "HEAD /health HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
	while ((n = recv(fd, text + have, sizeof(text) - 1 - have, 0)) > 0)
		have += (size_t)n;
	ck_assert_msg(strncmp(text, "HTTP/1.1 405", 12) == 0, "%s", text);
	ck_assert_str_eq(text + have - 4, "\r\n\r\n");
	close(fd);
	scene_finish(&s);
}
END_TEST

/* Put refused by the objects: the body is read away and the connection goes on. */
START_TEST(unwilling_objects)
{
	static const struct {
		int status;
		const char *code, *part;
		bool limited;
	} cases[] = {{KVT_FULL, "507", "no room: the segment", false},
		{KVT_FULL, "507", "X-Kvtier-Refused: quota\r\n", true},
		{KVT_BUSY, "503", "Retry-After: 1\r\n", false},
		{KVT_EINVAL, "400", "expected a bucket", false},
		{KVT_ENOMEM, "503", "not stored", false}};
	char *bytes = pattern(3000000, 5);
	struct scene s;
	int fd;

	scene_init(&s, NULL);
	fd = dial(kvt_server_listen(s.server));
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (int at_end = 0; at_end < 2; at_end++) {
			char *heard;

			atomic_store(&s.objects->begin_status, at_end ? 0 : cases[i].status);
			atomic_store(&s.objects->end_status, at_end ? cases[i].status : 0);
			atomic_store(&s.objects->limited, cases[i].limited);
			put(fd, "/v1/kv/b/k", bytes, 3000000);
			heard = hear(fd);
			ck_assert_msg(strncmp(heard + 9, cases[i].code, 3) == 0 &&
					      strstr(heard, cases[i].part) != NULL,
				"%s", heard);
			ck_assert_int_eq(strstr(heard, "X-Kvtier-Refused") != NULL, cases[i].limited);
			free(heard);
		}
	}
	atomic_store(&s.objects->end_status, 0);
	atomic_store(&s.objects->begin_status, KVT_BUSY);
	atomic_store(&s.objects->quiet_until, kvw_clock_wall_ns() + 90 * KVW_NS_PER_S);
	put(fd, "/v1/kv/b/k", bytes, 10);
	EXPECT(fd, "503", "Retry-After: 90\r\n");
	ask(fd, "GET", "/ready");
	EXPECT(fd, "200", "\"quiet_seconds\":89.");
	atomic_store(&s.objects->begin_status, 0);
	atomic_store(&s.objects->lease_status, KVT_BUSY);
	ask(fd, "POST", "/v1/kv/b/k/leases");
	EXPECT(fd, "503", "limits.leases");
	atomic_store(&s.objects->lease_status, KVT_ECANCELED); /* it may be there */
	ask(fd, "POST", "/v1/kv/b/k/leases?timeout_ms=60000");
	EXPECT(fd, "404", "Retry-After: 1\r\n");
	close(fd);
	free(bytes);
	scene_finish(&s);
}
END_TEST

/* What neither the client nor a limit is the cause of: alerts look at it by its reason. */
START_TEST(failures_are_counted_as_errors)
{
	struct scene s;
	int fd, admin;

	scene_init(&s, NULL);
	fd = dial(kvt_server_listen(s.server));
	admin = dial(kvt_server_admin(s.server));
	atomic_store(&s.objects->begin_status, KVT_EIO);
	put(fd, "/v1/kv/b/k", "hello", 5);
	EXPECT(fd, "503", "not stored: ");
	atomic_store(&s.objects->begin_status, 0);
	atomic_store(&s.objects->end_status, KVT_ENOMEM);
	put(fd, "/v1/kv/b/k", "hello", 5);
	EXPECT(fd, "503", "not stored: ");
	atomic_store(&s.objects->lease_status, KVT_EIO);
	ask(fd, "POST", "/v1/kv/b/k/leases");
	EXPECT(fd, "503", "no lease now: ");
	atomic_store(&s.objects->erase_status, KVT_EIO);
	ask(admin, "DELETE", "/v1/kv/b/k");
	EXPECT(admin, "503", "not erased: ");
	ask(fd, "GET", "/metrics");
	EXPECT(fd, "200", "\nkvtierd_refused_total{reason=\"error\"} 4\n");
	atomic_store(&s.objects->end_status, KVT_FULL); /* a limit is none */
	put(fd, "/v1/kv/b/k", "hello", 5);
	EXPECT(fd, "507", "no room");
	atomic_store(&s.objects->erase_status, KVT_EINVAL);
	ask(admin, "DELETE", "/v1/kv/b/k");
	EXPECT(admin, "400", "not erased: ");
	ask(fd, "GET", "/metrics");
	EXPECT(fd, "200", "\nkvtierd_refused_total{reason=\"error\"} 4\n");
	close(fd);
	close(admin);
	scene_finish(&s);
}
END_TEST

/* --- order, and bytes that come as they like -------------------------------------------------- */

START_TEST(pipelined_requests_are_answered_in_order)
{
	struct scene s;
	int fd;

	scene_init(&s, NULL);
	fd = dial(kvt_server_listen(s.server));
	atomic_store(&s.objects->lease_delay_ns, (uint64_t)20 * KVW_NS_PER_MS);
	say(fd, "PUT /v1/kv/b/k HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"
		"\r\n" /* an empty line before a request is passed over */
		"POST /v1/kv/b/k/leases HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n"
		"POST /v1/kv/b/none/leases HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nxy"
		"POST /v1/leases/lease-1/release HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n"
		"GET /health HTTP/1.1\r\nHost: h\r\n\r\n"
		"GET /nowhere HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
	EXPECT(fd, "200", "Content-Length: 0");
	EXPECT(fd, "200", "\"len\":5}]}");
	EXPECT(fd, "404", "not found");
	EXPECT(fd, "200", "Content-Length: 0");
	EXPECT(fd, "200", "\"ok\"");
	EXPECT(fd, "404", "no such path");
	expect_close(fd);
	scene_finish(&s);
}
END_TEST

/* Also where the client has closed its sending side right after them. */
START_TEST(a_client_that_only_stops_sending_is_answered)
{
	struct scene s;
	int fd;

	scene_init(&s, NULL);
	fd = dial(kvt_server_listen(s.server));
	say(fd, "PUT /v1/kv/b/k HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"
		"GET /health HTTP/1.1\r\nHost: h\r\n\r\n"
		"POST /v1/kv/b/k/leases HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n");
	shutdown(fd, SHUT_WR);
	EXPECT(fd, "200", "Content-Length: 0");
	EXPECT(fd, "200", "\"ok\"");
	EXPECT(fd, "200", "\"len\":5}]}");
	expect_close(fd);
	ck_assert_uint_eq(fake_leases(s.objects), 1); /* it was read: it stays */
	scene_finish(&s);
}
END_TEST

START_TEST(one_byte_at_a_time)
{
	static const char text[] =
		"PUT /v1/kv/b/k HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"
		"POST /v1/kv/b/k/leases HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n";
	struct scene s;
	char *heard;
	int fd;

	scene_init(&s, NULL);
	fd = dial(kvt_server_listen(s.server));
	for (size_t i = 0; i + 1 < sizeof(text); i++) {
		say_bytes(fd, text + i, 1);
		if (i % 16 == 0)
			usleep(300);
	}
	EXPECT(fd, "200", "");
	heard = hear(fd);
	check_lease(&s, heard, "hello", 5);
	free(heard);
	close(fd);
	scene_finish(&s);
}
END_TEST

START_TEST(continue_is_said_to_who_waits_for_it)
{
	struct scene s;
	char text[64] = "";
	int fd;

	scene_init(&s, NULL);
	fd = dial(kvt_server_listen(s.server));
	say(fd, "PUT /v1/kv/b/k HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n"
		"Expect: 100-continue\r\n\r\n");
	ck_assert_int_eq(recv(fd, text, 25, MSG_WAITALL), 25);
	ck_assert_str_eq(text, "HTTP/1.1 100 Continue\r\n\r\n");
	say(fd, "hello");
	EXPECT(fd, "200", "");
	atomic_store(&s.objects->begin_status, KVT_FULL);
	say(fd, "PUT /v1/kv/b/k HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n"
		"Expect: 100-continue\r\n\r\n");
	EXPECT(fd, "507", "Connection: close");
	expect_close(fd);
	scene_finish(&s);
}
END_TEST

/* --- administration --------------------------------------------------------------------------- */

START_TEST(lists_and_erasing)
{
	struct scene s;
	int fd, admin;

	scene_init(&s, NULL);
	fd = dial(kvt_server_listen(s.server));
	put(fd, "/v1/kv/b/a%22%0A", "x", 1);
	EXPECT(fd, "200", "");
	put(fd, "/v1/kv/b/b", "x", 1);
	EXPECT(fd, "200", "");
	put(fd, "/v1/kv/b/c", "x", 1);
	EXPECT(fd, "200", "");
	admin = dial(kvt_server_admin(s.server));
	ask(admin, "GET", "/v1/kv/b?limit=2");
	EXPECT(admin, "200",
		"{\"bucket\":\"b\",\"objects\":["
		"\n{\"key\":\"a\\\"\\u000a\",\"bytes\":1,\"tier\":\"memory\",\"leases\":0},"
		"\n{\"key\":\"b\",\"bytes\":1,\"tier\":\"memory\",\"leases\":0}],\n\"more\":true}");
	ask(admin, "GET", "/v1/kv/b?after=b");
	EXPECT(admin, "200",
		"[\n{\"key\":\"c\",\"bytes\":1,\"tier\":\"memory\",\"leases\":0}],\n"
		"\"more\":false}");
	ask(admin, "GET", "/v1/buckets");
	EXPECT(admin, "200", "{\"buckets\":[\n{\"bucket\":\"b\\\"1\",\"objects\":2,\"bytes\":3}]}");
	ask(admin, "PUT", "/v1/kv/b/k");
	EXPECT(admin, "404", "served at `listen`");
	ask(admin, "DELETE", "/v1/kv/b/b");
	EXPECT(admin, "200", "{\"erased\":1}");
	ask(admin, "DELETE", "/v1/kv/b/b");
	EXPECT(admin, "404", "not found");
	ask(admin, "DELETE", "/v1/kv/b");
	EXPECT(admin, "200", "{\"erased\":2}");
	ask(fd, "POST", "/v1/kv/b/c/leases");
	EXPECT(fd, "404", "not found");
	close(fd);
	close(admin);
	scene_finish(&s);
}
END_TEST

/* Clients that may erase; and erasing does not keep a loop from serving others. */
START_TEST(erasing_by_clients)
{
	struct scene s;
	int fd, other;

	scene_init(&s, "{client_erase: true, loops: 1}");
	fd = dial(kvt_server_listen(s.server));
	other = dial(kvt_server_listen(s.server));
	put(fd, "/v1/kv/b/k", "x", 1);
	EXPECT(fd, "200", "");
	atomic_store(&s.objects->erase_delay_ns, (uint64_t)200 * KVW_NS_PER_MS);
	ask(fd, "DELETE", "/v1/kv/b/k");
	ask(other, "GET", "/health");
	EXPECT(other, "200", "ok");
	EXPECT(fd, "200", "{\"erased\":1}");
	ask(fd, "DELETE", "/v1/kv/b/k"); /* and one whose client does not wait */
	close(fd);
	close(other);
	scene_finish(&s);
}
END_TEST

START_TEST(metrics_are_well_formed)
{
	struct scene s;
	char *heard, *line, *rest;
	size_t samples = 0;
	int fd;

	scene_init(&s, NULL);
	fd = dial(kvt_server_listen(s.server));
	put(fd, "/v1/kv/b/k", "hello", 5);
	EXPECT(fd, "200", "");
	ask(fd, "GET", "/metrics");
	heard = hear(fd);
	ck_assert(strstr(heard, "\nkvtierd_requests_total{route=\"put\",code=\"200\"} 1\n"));
	ck_assert(strstr(heard, "\nkvtierd_request_seconds_count{route=\"put\"} 1\n"));
	ck_assert(strstr(heard, "\nkvtierd_received_bytes_total 5\n"));
	ck_assert(strstr(heard, "\nkvtierd_connections 1\n"));
	ck_assert(strstr(heard, "\nkvtierd_segment_relinked_total 7\n"));
	for (line = strtok_r(strstr(heard, "\r\n\r\n") + 4, "\n", &rest); line != NULL;
		line = strtok_r(NULL, "\n", &rest)) {
		char *space = strrchr(line, ' ');

		if (line[0] == '#')
			continue;
		ck_assert_int_eq(strncmp(line, "kvtierd_", 8), 0);
		ck_assert(space != NULL && space[1] >= '0' && space[1] <= '9');
		samples++;
	}
	ck_assert_uint_gt(samples, 200);
	free(heard);
	close(fd);
	scene_finish(&s);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("server");

	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, put_lease_release);
	tcase_add_test(tcase, both_spellings_are_one_key);
	tcase_add_test(tcase, a_client_names_a_tenant);
	tcase_add_test(tcase, an_engine_asks_for_generations);
	tcase_add_test(tcase, wishes_are_cut);
	tcase_add_loop_test(tcase, a_refusal_says_why, 0, sizeof(refusals) / sizeof(refusals[0]));
	tcase_add_test(tcase, a_head_request_gets_no_body);
	tcase_add_test(tcase, unwilling_objects);
	tcase_add_test(tcase, failures_are_counted_as_errors);
	tcase_add_test(tcase, pipelined_requests_are_answered_in_order);
	tcase_add_test(tcase, a_client_that_only_stops_sending_is_answered);
	tcase_add_test(tcase, one_byte_at_a_time);
	tcase_add_test(tcase, continue_is_said_to_who_waits_for_it);
	tcase_add_test(tcase, lists_and_erasing);
	tcase_add_test(tcase, erasing_by_clients);
	tcase_add_test(tcase, metrics_are_well_formed);
	return run_tcase("daemon-server", tcase);
}
