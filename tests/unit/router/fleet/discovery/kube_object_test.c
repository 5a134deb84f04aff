/*
 * kube_object_test.c - pages and events of the API of Kubernetes: what counts as a worker, and hostile JSON.
 */
#include "kube.h"

#include "tests/unit/suite.h"

static struct kvw_config *config;

static void setup(void)
{
	config = config_with_pools("[{selector: 'app=vllm', port: http, models_from: m/s, weight_from: share}, "
				   "{selector: 'app=vllm', port: 9000}, {service: vllm}, "
				   "{name: b, service: vllm, port: grpc}, "
				   "{selector: 'app=vllm', port: 8080-tcp}]");
}

static void teardown(void)
{
	kvw_config_destroy(config);
}

static struct kvw_kube_event event;

/* The endpoints of an object in an ADDED event: "ADDRESS:PORT/IDENTITY ...". */
static const char *endpoints(size_t pool, const char *object)
{
	static char text[512];
	size_t used = 0;

	read_event_text(&config->pools[pool], "ADDED", object, &event);
	text[0] = '\0';
	for (size_t i = 0; i < event.object.endpoint_count; i++) {
		const struct kvw_kube_endpoint *e = &event.object.endpoints[i];

		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s:%u/%s",
			i > 0 ? " " : "", e->address, e->port, e->identity);
	}
	kvw_kube_event_finish(&event);
	return text;
}

#define META "\"metadata\":{\"name\":\"a\",\"uid\":\"u\",\"resourceVersion\":\"7\""
#define APP  ",\"labels\":{\"app\":\"vllm\"}}"
#define SPEC "\"spec\":{\"containers\":[{},{\"ports\":[{\"name\":\"http\",\"containerPort\":8001}]}]}"
#define GOOD "\"conditions\":[{\"type\":\"Ready\",\"status\":\"True\"}]"
#define POD(metadata, status) "{" metadata "," SPEC ",\"status\":{" status "}}"

START_TEST(test_pods)
{
	ck_assert_str_eq(endpoints(0, POD(META APP, "\"podIP\":\"10.0.0.1\"," GOOD)), "10.0.0.1:8001/u");
	ck_assert_str_eq(endpoints(1, POD(META APP, "\"podIP\":\"10.0.0.1\"," GOOD)), "10.0.0.1:9000/u");
	ck_assert_str_eq(endpoints(0, POD(META APP, "\"podIP\":\"FD00:0::1\"," GOOD)), "fd00::1:8001/u");
	ck_assert_str_eq(endpoints(4, "{" META APP ",\"spec\":{\"containers\":[{\"ports\":[{\"name\":\"8080-tcp\","
				      "\"containerPort\":8002}]}]},\"status\":{\"podIP\":\"10.0.0.1\"," GOOD "}}"),
		"10.0.0.1:8002/u");
	/* What may get no requests. */
	ck_assert_str_eq(endpoints(0, POD(META APP, "\"podIP\":\"\"," GOOD)), "");
	ck_assert_str_eq(endpoints(0, POD(META APP, GOOD)), "");
	ck_assert_str_eq(endpoints(0, POD(META APP, "\"podIP\":null," GOOD)), "");
	ck_assert_str_eq(endpoints(0, POD(META APP, "\"podIP\":\"host.example\"," GOOD)), "");
	ck_assert_str_eq(endpoints(0, POD(META APP, "\"podIP\":\"10.0.0.1\"")), "");
	ck_assert_str_eq(endpoints(0, POD(META APP, "\"podIP\":\"10.0.0.1\",\"phase\":\"Failed\"," GOOD)), "");
	ck_assert_str_eq(
		endpoints(0, POD(META APP, "\"podIP\":\"10.0.0.1\",\"phase\":\"Succeeded\"," GOOD)), "");
	ck_assert_str_eq(endpoints(0, POD(META APP,
				 "\"podIP\":\"10.0.0.1\",\"conditions\":[{\"type\":\"Ready\",\"status\":\"Unknown\"}]")),
		"");
	ck_assert_str_eq(endpoints(0, POD(META ",\"deletionTimestamp\":\"2026-01-01T00:00:00Z\"" APP,
				 "\"podIP\":\"10.0.0.1\"," GOOD)),
		"");
	ck_assert_str_eq(endpoints(0, POD(META ",\"labels\":{\"app\":\"web\"}}", "\"podIP\":\"10.0.0.1\"," GOOD)), "");
	ck_assert_str_eq(endpoints(0, POD(META "}", "\"podIP\":\"10.0.0.1\"," GOOD)), "");
	ck_assert_str_eq(endpoints(0, "{" META APP ",\"status\":{\"podIP\":\"10.0.0.1\"," GOOD "}}"), "");
}
END_TEST

static enum kvw_role role_by(const char *labels)
{
	char text[1024];
	enum kvw_role role;

	snprintf(text, sizeof(text), POD(META ",\"labels\":{\"app\":\"vllm\"%s}}", "\"podIP\":\"10.0.0.1\"," GOOD), labels);
	read_event_text(&config->pools[0], "ADDED", text, &event);
	role = event.object.role;
	kvw_kube_event_finish(&event);
	return role;
}

START_TEST(test_roles)
{
	ck_assert_int_eq(role_by(""), KVW_ROLE_BOTH);
	ck_assert_int_eq(role_by(",\"llm-d.ai/role\":\"prefill\""), KVW_ROLE_PREFILL);
	ck_assert_int_eq(role_by(",\"llm-d.ai/role\":\"decode\""), KVW_ROLE_DECODE);
	ck_assert_int_eq(role_by(",\"llm-d.ai/role\":\"prefill-decode\""), KVW_ROLE_BOTH);
	ck_assert_int_eq(role_by(",\"llm-d.ai/role\":\"encode\""), KVW_ROLE_BOTH);
	ck_assert_int_eq(
		role_by(",\"llm-d.ai/role\":\"decode\",\"kvway.io/role\":\"prefill\""), KVW_ROLE_PREFILL);
	ck_assert_int_eq(role_by(",\"llm-d.ai/role\":\"decode\",\"kvway.io/role\":\"both\""), KVW_ROLE_BOTH);
}
END_TEST

START_TEST(test_models_and_weight)
{
	static const char object[] = POD(
		META ",\"annotations\":{\"m/s\":\" a, ,b\"},\"labels\":{\"app\":\"vllm\",\"m/s\":\"c\",\"share\":\"0.25\"}}",
		"\"podIP\":\"10.0.0.1\"," GOOD);

	read_event_text(&config->pools[0], "MODIFIED", object, &event);
	ck_assert_int_eq(event.kind, KVW_KUBE_MODIFIED);
	ck_assert_uint_eq(event.object.models.count, 2);
	ck_assert_str_eq(event.object.models.items[0], "a");
	ck_assert_str_eq(event.object.models.items[1], "b");
	ck_assert_double_eq(event.object.weight, 0.25);
	ck_assert_uint_eq(event.object.version, 7);
	ck_assert_str_eq(event.version, "7");
	kvw_kube_event_finish(&event);
	read_event_text(&config->pools[0], "ADDED",
		POD(META ",\"labels\":{\"app\":\"vllm\",\"m/s\":\"c\",\"share\":\"2\"}}", "\"podIP\":\"10.0.0.1\"," GOOD),
		&event);
	ck_assert_uint_eq(event.object.models.count, 1);
	ck_assert_double_eq(event.object.weight, 0);
	kvw_kube_event_finish(&event);
}
END_TEST

#define SLICE(ports, list)                                                                             \
	"{" META ",\"labels\":{\"kubernetes.io/service-name\":\"vllm\"}},\"ports\":[" ports              \
	"],\"endpoints\":[" list "]}"
#define HTTP "{\"name\":\"http\",\"port\":8000}"
#define GRPC "{\"name\":\"grpc\",\"port\":9001}"

START_TEST(test_endpoint_slices)
{
	ck_assert_str_eq(endpoints(2,
				 SLICE(HTTP, "{\"addresses\":[\"10.0.0.1\"],\"conditions\":{\"ready\":true},"
					     "\"targetRef\":{\"kind\":\"Pod\",\"uid\":\"u1\"}},"
					     "{\"addresses\":[\"10.0.0.2\"],\"conditions\":{}},"
					     "{\"addresses\":[\"10.0.0.3\"],\"conditions\":{\"ready\":false}},"
					     "{\"addresses\":[\"10.0.0.4\"],\"conditions\":{\"ready\":true,\"terminating\":true}},"
					     "{\"addresses\":[\"h.example\"]},{\"addresses\":[]},7")),
		"10.0.0.1:8000/u1 10.0.0.2:8000/");
	ck_assert_str_eq(endpoints(2, SLICE(HTTP "," GRPC, "{\"addresses\":[\"10.0.0.1\"]}")), "");
	ck_assert_str_eq(endpoints(3, SLICE(HTTP "," GRPC, "{\"addresses\":[\"10.0.0.1\"]}")), "10.0.0.1:9001/");
	ck_assert_str_eq(endpoints(2, "{" META "},\"ports\":[" HTTP "],\"endpoints\":[{\"addresses\":[\"10.0.0.1\"]}]}"), "");
	ck_assert_str_eq(endpoints(2, "{" META "},\"endpoints\":null,\"ports\":null}"), "");
}
END_TEST

static enum kvw_err read_event(const char *text)
{
	enum kvw_err err = kvw_kube_event_read(&config->pools[0], text, strlen(text), &event);

	if (err == KVW_OK)
		kvw_kube_event_finish(&event);
	return err;
}

START_TEST(test_other_events)
{
	ck_assert_int_eq(read_event("{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"12\","
				    "\"creationTimestamp\":null}}}"), KVW_OK);
	ck_assert_int_eq(event.kind, KVW_KUBE_BOOKMARK);
	ck_assert_str_eq(event.version, "12");
	ck_assert_int_eq(read_event("{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410,"
				    "\"message\":\"too old\\n\\\"resource version\\\"\"}}"), KVW_OK);
	ck_assert_int_eq(event.kind, KVW_KUBE_ERROR);
	ck_assert_int_eq(event.code, 410);
	ck_assert_str_eq(event.message, "too old  resource version ");
	ck_assert_int_eq(read_event("{\"type\":\"ERROR\",\"object\":{\"code\":-5}}"), KVW_OK);
	ck_assert_int_eq(event.code, 0);
}
END_TEST

START_TEST(test_hostile_events)
{
	static const char *const texts[] = {"", "{", "[]", "null", "7", "{\"type\":\"ADDED\"}",
		"{\"type\":\"ADDED\",\"object\":[]}", "{\"type\":\"ADDED\",\"object\":{}}",
		"{\"type\":\"SOMETHING\",\"object\":{}}", "{\"type\":7,\"object\":{}}",
		"{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a\"}}}",
		"{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"\",\"uid\":\"u\"}}}",
		"{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a b\",\"uid\":\"u\"}}}",
		"{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"name\":\"a\\u0000b\",\"uid\":\"u\"}}}",
		"{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"\"}}}",
		"{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":7}}}",
		"{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"1&limit=2 \"}}}",
		"{\"type\":\"ADDED\",\"object\":{\"metadata\":null}} trailing"};
	char deep[9000];

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		ck_assert_msg(read_event(texts[i]) == KVW_EINVAL, "%s", texts[i]);
	memset(deep, '[', sizeof(deep) - 1);
	deep[sizeof(deep) - 1] = '\0';
	ck_assert_int_eq(read_event(deep), KVW_EINVAL);
	/* Members of wrong types are not there. */
	ck_assert_str_eq(endpoints(0, "{\"metadata\":{\"name\":\"a\",\"uid\":\"u\",\"labels\":7},\"spec\":[],\"status\":\"x\"}"), "");
	ck_assert_str_eq(endpoints(2, "{" META "},\"endpoints\":{\"a\":1},\"ports\":[1,{}]}"), "");
}
END_TEST

static enum kvw_err read_page(const char *text, struct kvw_kube_page *page)
{
	return kvw_kube_page_read(&config->pools[0], text, strlen(text), page);
}

START_TEST(test_pages)
{
	static const char *const bad[] = {"", "[]", "{}", "{\"items\":[]}",
		"{\"metadata\":{\"resourceVersion\":\"\"},\"items\":[]}",
		"{\"metadata\":{\"resourceVersion\":\"5\"}}",
		"{\"metadata\":{\"resourceVersion\":\"5\"},\"items\":{}}",
		"{\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[{}]}",
		"{\"metadata\":{\"resourceVersion\":\"5\",\"continue\":\"a b\"},\"items\":[]}",
		"{\"metadata\":{\"resourceVersion\":\"5\",\"continue\":7},\"items\":[]}",
		"{\"metadata\":{\"resourceVersion\":\"5\",\"continue\":{}},\"items\":[]}",
		"{\"metadata\":{\"resourceVersion\":\"5\",\"remainingItemCount\":3},\"items\":[]}",
		"{\"metadata\":{\"resourceVersion\":\"5\",\"continue\":\"\",\"remainingItemCount\":1},\"items\":[]}",
		"{\"kind\":\"NodeList\",\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[]}",
		"{\"kind\":7,\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[]}"};
	static const char *const empty[] = {"{\"metadata\":{\"resourceVersion\":\"5\"},\"items\":null}",
		"{\"kind\":\"PodList\",\"metadata\":{\"resourceVersion\":\"5\",\"continue\":null},\"items\":[]}",
		"{\"metadata\":{\"resourceVersion\":\"5\",\"continue\":\"\",\"remainingItemCount\":0},\"items\":[]}"};
	struct kvw_kube_page page;
	char *text = NULL;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(read_page(bad[i], &page) == KVW_EINVAL, "%s", bad[i]);
	for (size_t i = 0; i < sizeof(empty) / sizeof(empty[0]); i++) {
		ck_assert_msg(read_page(empty[i], &page) == KVW_OK, "%s", empty[i]);
		ck_assert_uint_eq(page.count, 0);
		ck_assert_str_eq(page.next, "");
		kvw_kube_page_finish(&page);
	}
	ck_assert_int_ge(asprintf(&text,
				 "{\"metadata\":{\"resourceVersion\":\"5\",\"continue\":\"abc\"},\"items\":[%s]}",
				 pod("a", "u", 3, "10.0.0.1")), 0);
	ck_assert_int_eq(read_page(text, &page), KVW_OK);
	ck_assert_uint_eq(page.count, 1);
	ck_assert_str_eq(page.objects[0].name, "a");
	ck_assert_str_eq(page.version, "5");
	ck_assert_str_eq(page.next, "abc");
	kvw_kube_page_finish(&page);
	free(text);
}
END_TEST

START_TEST(test_versions)
{
	ck_assert_uint_eq(kvw_kube_version_number("123"), 123);
	ck_assert_uint_eq(kvw_kube_version_number("0123"), 0);
	ck_assert_uint_eq(kvw_kube_version_number("12a"), 0);
	ck_assert_uint_eq(kvw_kube_version_number("-1"), 0);
	ck_assert_uint_eq(kvw_kube_version_number(""), 0);
	ck_assert_uint_eq(kvw_kube_version_number("9999999999999999999"), UINT64_C(9999999999999999999));
	ck_assert_uint_eq(kvw_kube_version_number("10000000000000000000"), 0);
}
END_TEST

START_TEST(test_status)
{
	static const char text[] = "{\"kind\":\"Status\",\"message\":\"pods is forbidden\"}";
	char message[64];

	kvw_kube_status_read(text, strlen(text), message, sizeof(message));
	ck_assert_str_eq(message, "pods is forbidden");
	kvw_kube_status_read("<html>", 6, message, sizeof(message));
	ck_assert_str_eq(message, "");
	kvw_kube_status_read(text, strlen(text), message, 5);
	ck_assert_str_eq(message, "pods");
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("kube_object");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_pods);
	tcase_add_test(tc, test_models_and_weight);
	tcase_add_test(tc, test_roles);
	tcase_add_test(tc, test_endpoint_slices);
	tcase_add_test(tc, test_other_events);
	tcase_add_test(tc, test_hostile_events);
	tcase_add_test(tc, test_pages);
	tcase_add_test(tc, test_versions);
	tcase_add_test(tc, test_status);
	return run_tcase("fleet discovery kube_object", tc);
}
