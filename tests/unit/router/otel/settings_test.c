/*
 * settings_test.c - the section `tracing`, and the variables that count where its keys have their
 * defaults.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "otel/otlp.h"
#include "otel/settings.h"
#include "tests/unit/suite.h"

#define LOOPS 4
#define ALL   (UINT64_C(1) << 56)

/* The variables of a test: name, value, ..., NULL. Set by the test that runs, in its own process. */
static const char *const *environment;

static const char *variable(const char *name)
{
	for (size_t i = 0; environment != NULL && environment[i] != NULL; i += 2)
		if (strcmp(environment[i], name) == 0)
			return environment[i + 1];
	return NULL;
}

/* Makes settings from a configuration's lines. */
static struct kvw_otel_settings make(const char *tracing, const char *const *variables)
{
	static const struct kvw_strategy_ops none = {.name = "prefixaware"};
	static const struct kvw_strategy_ops *const strategies[] = {&none, NULL};
	struct kvw_config *config = NULL;
	struct kvw_otel_settings settings;
	char text[512];

	(void)snprintf(text, sizeof(text), "workers: [{url: 'http://127.0.0.1:1'}]\n%s", tracing);
	ck_assert_int_eq(
		kvw_config_parse("test", text, strlen(text), strategies, stderr, &config), KVW_OK);
	environment = variables;
	ck_assert_int_eq(kvw_otel_settings_make(config, LOOPS, variable, &settings), KVW_OK);
	kvw_config_destroy(config);
	return settings;
}

START_TEST(nothing_is_exported_without_an_endpoint)
{
	struct kvw_otel_settings settings = make("", NULL);

	ck_assert_ptr_null(settings.endpoint);
	ck_assert(!settings.sampling.on);
}
END_TEST

START_TEST(keys_alone)
{
	struct kvw_otel_settings settings =
		make("tracing: {endpoint: 'http://c:4318', ratio: 0.5, slow: 2s, "
		     "tail_per_second: 10, headers: 'a=b,c=d%2Ce,'}\n",
			NULL);

	ck_assert_str_eq(settings.endpoint, "http://c:4318/v1/traces");
	ck_assert_int_eq(settings.protocol, KVW_OTLP_PROTOBUF);
	ck_assert_str_eq(settings.service_name, "kvway");
	ck_assert(settings.sampling.on && settings.sampling.parent && settings.sampling.failed);
	ck_assert_uint_eq(settings.sampling.below, ALL / 2);
	ck_assert_int_eq(settings.sampling.slow_ns, INT64_C(2000000000));
	ck_assert_uint_eq(settings.sampling.tail_per_second, 3); /* of each of four loops */
	ck_assert_uint_eq(settings.header_count, 2);
	ck_assert_str_eq(settings.headers[1].name, "c");
	ck_assert_str_eq(settings.headers[1].value, "d,e");
	kvw_otel_settings_finish(&settings);
}
END_TEST

START_TEST(endpoints_and_their_paths)
{
	static const struct {
		const char *key, *name, *value, *expected;
	} cases[] = {
		{"http://c:4318", "", "", "http://c:4318/v1/traces"},
		{"http://c:4318/", "", "", "http://c:4318/v1/traces"},
		{"https://c/own", "", "", "https://c/own"},
		{"http://c:4318?token=a/b", "", "", "http://c:4318/v1/traces?token=a/b"},
		{"http://c:4318/?token=a", "", "", "http://c:4318/v1/traces?token=a"},
		{"http://c:4318/own?token=a", "", "", "http://c:4318/own?token=a"},
		{"", "OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1/base", "http://c:1/base/v1/traces"},
		{"", "OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1/", "http://c:1/v1/traces"},
		{"", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://c:1/", "http://c:1/"},
		{"", "OTEL_EXPORTER_OTLP_ENDPOINT", "c:4317", NULL},
		{"http://key:1/x", "OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1", "http://key:1/x"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *const variables[] = {cases[i].name, cases[i].value, NULL};
		struct kvw_otel_settings settings;
		char tracing[128];

		(void)snprintf(
			tracing, sizeof(tracing), "tracing: {endpoint: '%s'}\n", cases[i].key);
		settings = make(tracing, variables);
		if (cases[i].expected == NULL)
			ck_assert_ptr_null(settings.endpoint);
		else
			ck_assert_str_eq(settings.endpoint, cases[i].expected);
		kvw_otel_settings_finish(&settings);
	}
}
END_TEST

/* Returns which requests a sampler chooses, with an endpoint by a variable. */
static struct kvw_trace_sampling sampler(const char *tracing, const char *name, const char *arg)
{
	const char *const variables[] = {"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1",
		"OTEL_TRACES_SAMPLER", name, "OTEL_TRACES_SAMPLER_ARG", arg, NULL};
	struct kvw_otel_settings settings = make(tracing, variables);
	struct kvw_trace_sampling sampling = settings.sampling;

	kvw_otel_settings_finish(&settings);
	return sampling;
}

START_TEST(samplers)
{
	ck_assert_uint_eq(sampler("", "always_on", "").below, ALL);
	ck_assert(!sampler("", "always_on", "").parent);
	ck_assert_uint_eq(sampler("", "parentbased_always_on", "").below, ALL);
	ck_assert(sampler("", "parentbased_always_on", "").parent);
	ck_assert_uint_eq(sampler("", "always_off", "").below, 0);
	ck_assert_uint_eq(sampler("", "parentbased_traceidratio", "0.25").below, ALL / 4);
	ck_assert_uint_eq(sampler("", "traceidratio", "").below, ALL);
	ck_assert_uint_eq(sampler("", "traceidratio", "2").below, ALL);
	/* one that is not known does not count, nor does any where the keys differ from their
	 * defaults */
	ck_assert_uint_eq(sampler("", "xray", "").below, (uint64_t)(0.1 * (double)ALL));
	ck_assert_uint_eq(sampler("tracing: {ratio: 0.5}\n", "always_on", "").below, ALL / 2);
}
END_TEST

START_TEST(other_variables)
{
	static const char *const variables[] = {"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1",
		"OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf",
		"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json", "OTEL_EXPORTER_OTLP_COMPRESSION",
		"gzip", "OTEL_EXPORTER_OTLP_TIMEOUT", "1500", "OTEL_EXPORTER_OTLP_CERTIFICATE",
		"/ca.pem", "OTEL_EXPORTER_OTLP_HEADERS", "k=v", "OTEL_RESOURCE_ATTRIBUTES",
		"service.name=listed,a=b", "OTEL_BSP_SCHEDULE_DELAY", "5000", NULL};
	struct kvw_otel_settings settings = make("", variables);

	ck_assert_int_eq(settings.protocol, KVW_OTLP_JSON);
	ck_assert_int_eq(settings.compression, KVW_OTLP_GZIP);
	ck_assert_int_eq(settings.timeout_ms, 1500);
	ck_assert_int_eq(settings.interval_ms, 5000);
	ck_assert_str_eq(settings.ca_file, "/ca.pem");
	ck_assert_str_eq(settings.headers[0].value, "v");
	ck_assert_str_eq(settings.service_name, "listed");
	ck_assert_uint_eq(settings.resource_count, 2);
	kvw_otel_settings_finish(&settings);
}
END_TEST

START_TEST(a_name_that_is_too_long_does_not_count)
{
	char name[300];
	const char *const variables[] = {"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1",
		"OTEL_SERVICE_NAME", name, NULL};
	struct kvw_otel_settings settings;

	memset(name, 'x', sizeof(name));
	name[256] = '\0';
	settings = make("", variables);
	ck_assert_str_eq(settings.service_name, "kvway");
	kvw_otel_settings_finish(&settings);
	name[255] = '\0';
	settings = make("", variables);
	ck_assert_str_eq(settings.service_name, name);
	kvw_otel_settings_finish(&settings);
}
END_TEST

START_TEST(switched_off)
{
	static const char *const disabled[] = {"OTEL_SDK_DISABLED", "TRUE", NULL};
	static const char *const none[] = {
		"OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:1", "OTEL_TRACES_EXPORTER", "none", NULL};

	ck_assert_ptr_null(make("tracing: {endpoint: 'http://c:1'}\n", disabled).endpoint);
	ck_assert_ptr_null(make("", none).endpoint);
}
END_TEST

START_TEST(lists_with_mistakes)
{
	struct kvw_otel_pair pairs[KVW_OTEL_PAIRS_MOST];
	size_t count = 0;
	char many[8 * KVW_OTEL_PAIRS_MOST + 8] = "";

	ck_assert_int_eq(kvw_otel_pairs_read("a=b,oops,c=d", pairs, &count), KVW_EINVAL);
	ck_assert_uint_eq(count, 1);
	ck_assert_int_eq(kvw_otel_pairs_read("=b", pairs, &count), KVW_EINVAL);
	ck_assert_int_eq(kvw_otel_pairs_read("a b=c", pairs, &count), KVW_EINVAL);
	ck_assert_int_eq(kvw_otel_pairs_read("x=%0d%0aHost: y", pairs, &count), KVW_OK);
	ck_assert_str_eq(pairs[1].value, "  Host: y"); /* it cannot end a header field */
	for (int i = 0; i < KVW_OTEL_PAIRS_MOST; i++)
		strcat(many, "k=v,");
	ck_assert_int_eq(kvw_otel_pairs_read(many, pairs, &count), KVW_EINVAL);
	ck_assert_uint_eq(count, KVW_OTEL_PAIRS_MOST);
	for (size_t i = 0; i < count; i++) {
		free(pairs[i].name);
		free(pairs[i].value);
	}
}
END_TEST

START_TEST(answers_of_collectors)
{
	static const struct {
		const char *bytes;
		size_t len;
		uint64_t rejected;
	} binary[] = {
		{"", 0, 0},
		{"\x0a\x02\x08\x05", 4, 5},
		{"\x0a\x06\x12\x01x\x08\x80\x01", 8, 128}, /* the message comes first */
		{"\x12\x00\x0a\x02\x08\x07", 6, 7},        /* behind a field that is not known */
		{"\x0a\x02\x08", 3, 0},
		{"\x0a\x09\x08\x05", 4, 0},
		{"\x08\x05", 2, 0},
		{"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 11, 0},
	};
	static const char *const texts[] = {"{\"partialSuccess\":{\"rejectedSpans\":\"12\"}}",
		"{\"partialSuccess\":{\"rejectedSpans\":12}}"};

	for (size_t i = 0; i < sizeof(binary) / sizeof(binary[0]); i++)
		ck_assert_uint_eq(kvw_otlp_protobuf.rejected(binary[i].bytes, binary[i].len),
			binary[i].rejected);
	for (size_t i = 0; i < 2; i++)
		ck_assert_uint_eq(kvw_otlp_json.rejected(texts[i], strlen(texts[i])), 12);
	ck_assert_uint_eq(
		kvw_otlp_json.rejected("{\"partialSuccess\":{\"rejectedSpans\":-1}}", 39), 0);
	ck_assert_uint_eq(kvw_otlp_json.rejected("<html>", 6), 0);
}
END_TEST

START_TEST(a_password_in_a_url_is_not_logged)
{
	const char *const variables[] = {
		"OTEL_EXPORTER_OTLP_ENDPOINT", "http://alice:hunter2@c:4318", NULL};
	char text[4096] = "";
	FILE *log = tmpfile();
	int before = dup(STDERR_FILENO);
	struct kvw_otel_settings settings;

	ck_assert_ptr_nonnull(log);
	ck_assert_int_ge(dup2(fileno(log), STDERR_FILENO), 0);
	settings = make("", variables);
	ck_assert_int_ge(dup2(before, STDERR_FILENO), 0);
	close(before);
	ck_assert_ptr_null(settings.endpoint);
	rewind(log);
	ck_assert_uint_gt(fread(text, 1, sizeof(text) - 1, log), 0);
	fclose(log);
	ck_assert_ptr_nonnull(strstr(text, "OTEL_EXPORTER_OTLP_ENDPOINT"));
	ck_assert_ptr_null(strstr(text, "hunter2"));
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("settings");

	tcase_add_test(tcase, nothing_is_exported_without_an_endpoint);
	tcase_add_test(tcase, a_password_in_a_url_is_not_logged);
	tcase_add_test(tcase, keys_alone);
	tcase_add_test(tcase, endpoints_and_their_paths);
	tcase_add_test(tcase, samplers);
	tcase_add_test(tcase, other_variables);
	tcase_add_test(tcase, a_name_that_is_too_long_does_not_count);
	tcase_add_test(tcase, switched_off);
	tcase_add_test(tcase, lists_with_mistakes);
	tcase_add_test(tcase, answers_of_collectors);
	return run_tcase("otel-settings", tcase);
}
