// The template language: errors with their line, what is refused, and that everything ends. What
// templates print is compared with transformers in chat_template_test.cc.
#include "io/jinja/interpreter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <ctime>
#include <string>
#include <vector>

#include "io/jinja/parser.h"

namespace volta::jinja {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

Result<std::string> run(std::string_view source, const Limits& limits = {}) {
  VOLTA_TRY(const Ast ast, parse(source));
  Environment environment{.limits = limits};
  const auto json = parse_json(R"({"l": [1, 2, 3], "s": "text", "d": {"a": 1}})", "variables");
  for (const auto& [name, value] : *json->if_object()) {
    VOLTA_TRY(Value made, from_json(value));
    environment.variables.emplace_back(name, std::move(made));
  }
  VOLTA_TRY(QuotedText made, render(ast, environment));
  return std::move(made.text);
}
std::string text(std::string_view source) {
  const auto result = run(source);
  return result ? *result : "error: " + result.error().message();
}

struct Bad {
  std::string source, message;
  ErrorCode code = ErrorCode::kInvalidFile;
};

void expect_bad(const std::vector<Bad>& cases) {
  for (const Bad& bad : cases) {
    const auto result = run(bad.source);
    ASSERT_FALSE(result) << bad.source << " gave " << *result;
    EXPECT_THAT(result.error().message(), HasSubstr(bad.message)) << bad.source;
    EXPECT_EQ(result.error().code(), bad.code) << bad.source << ": " << result.error().message();
  }
}

TEST(JinjaSyntax, MistakesHaveTheirLine) {
  expect_bad({
      {"a\n{{ 'x }}", "line 2: a string has no end"},
      {"{{ 'a\\'", "line 1: a string has no end"},
      {"\n{{ x", "line 2: '{{' has no '}}'"},
      {"{% if x", "line 1: '{%' has no '%}'"},
      {"{# x", "line 1: a comment has no end"},
      {"{% raw %} x", "a raw block has no end"},
      {"{{ x ! y }}", "unexpected character '!'"},
      {"{{ é }}", "unexpected character 'é'"},
      {"{{ (x] }}", "unexpected ']'"},
      {"{{ x) }}", "unexpected ')'"},
      {"{{ '\\xg0' }}", "'\\x' takes 2 hexadecimal digits"},
      {"{{ }}", "expected an expression, found '}}'"},
      {"{{ x y }}", "expected '}}', found 'y'"},
      {"{{ x. }}", "expected a name after '.'"},
      {"{{ x[] }}", "expected an index"},
      {"{{ [1 2] }}", "expected ','"},
      {"{{ {1} }}", "expected ':'"},
      {"{{ f(a=1, 2) }}", "an argument without a name follows one with it"},
      {"{{ x is a is b }}", "tests with 'is' cannot be chained"},
      {"{% if x %}\n", "line 1: the block has no {% endif %}"},
      {"{% for x in l %}{% endif %}", "{% endif %} has nothing to belong to"},
      {"{% for x l %}", "expected 'in'"},
      {"{% for true in l %}{% endfor %}", "'true' cannot be assigned to"},
      {"{% else %}", "{% else %} has nothing to belong to"},
      {"{% %}", "expected a name"},
      {"{% set x %}", "the block has no {% endset %}"},
      {"{% macro m(a=1, b) %}{% endmacro %}", "without a default value follows"},
      {"{% break %}", "'break' outside of a loop"},
      {"{% for x in l %}{% macro m() %}{% continue %}{% endmacro %}{% endfor %}",
       "'continue' outside of a loop"},
      {"a\xff", "byte 1 is not UTF-8"},
      {std::string(1 << 21, 'x'), "more than a template may have"},
  });
}

TEST(JinjaSyntax, WhatIsNotSupportedIsNamed) {
  expect_bad({
      {"\n{% include 'x' %}", "line 2: the tag {% include %} is not supported",
       ErrorCode::kUnsupported},
      {"{% call m() %}{% endcall %}", "{% call %} is not supported", ErrorCode::kUnsupported},
      {"{% for x in l recursive %}{% endfor %}", "a recursive loop", ErrorCode::kUnsupported},
      {"{{ f(*l) }}", "'*' before an argument", ErrorCode::kUnsupported},
      {"{{ l[1, 2] }}", "an index with several parts", ErrorCode::kUnsupported},
      {"{{ 0x10 }}", "only decimal numbers", ErrorCode::kUnsupported},
      {"{{ 99999999999999999999 }}", "is too large", ErrorCode::kUnsupported},
      {"{{ '\\N{DASH}' }}", "'\\N{...}'", ErrorCode::kUnsupported},
      {"{{ '\\ud800' }}", "U+D800 is no character", ErrorCode::kUnsupported},
      {"{% macro m() %}{{ varargs }}{% endmacro %}", "'varargs' in a macro",
       ErrorCode::kUnsupported},
      {"{% set loop = 1 %}", "assigning to 'loop'", ErrorCode::kUnsupported},
      {"{{ s|urlize }}", "line 1: the filter 'urlize' is not supported", ErrorCode::kUnsupported},
      {"{{ s is nothing }}", "the test 'nothing' is not supported", ErrorCode::kUnsupported},
      {"{{ s.swapcase() }}", "the method str.swapcase is not supported", ErrorCode::kUnsupported},
      {"{{ s.format(1) }}", "the method str.format is not supported", ErrorCode::kUnsupported},
      {"{{ d.fromkeys() }}", "the method dict.fromkeys is not supported", ErrorCode::kUnsupported},
      {"{{ cycler('a') }}", "'cycler' is not supported", ErrorCode::kUnsupported},
      {"{{ '%s' % 1 }}", "formatting a string with '%'", ErrorCode::kUnsupported},
      {"{{ 'ß'|upper }}", "the letter case of U+00DF", ErrorCode::kUnsupported},
      {"{{ range(3) }}", "printing an iterator or a range", ErrorCode::kUnsupported},
      {"{{ namespace() }}", "printing a namespace", ErrorCode::kUnsupported},
      {"{{ [namespace()] }}", "storing a namespace", ErrorCode::kUnsupported},
      {"{% set n = namespace() %}{% set n.n = n %}", "storing a namespace",
       ErrorCode::kUnsupported},
      {"{{ 9223372036854775807 + 1 }}", "beyond 64 bits", ErrorCode::kUnsupported},
      {"{{ 3 ** 99 }}", "beyond 64 bits", ErrorCode::kUnsupported},
      {"{{ ('a'|safe) + 'b' }}", "on 'safe' text", ErrorCode::kUnsupported},
      {"{{ ('a'|safe).strip() }}", "of 'safe' text", ErrorCode::kUnsupported},
      {"{{ ('a'|safe)[0] }}", "into 'safe' text", ErrorCode::kUnsupported},
      {"{{ ('a'|safe)[1:] }}", "a slice of 'safe' text", ErrorCode::kUnsupported},
      {"{{ ['a'|safe] }}", "printing 'safe' text inside a list", ErrorCode::kUnsupported},
      {"{{ {(1,): 2} }}", "a tuple as key of a dict", ErrorCode::kUnsupported},
      {"{{ strftime_now('%Q') }}", "strftime_now: '%Q'", ErrorCode::kUnsupported},
      {"{% for x in l %}{{ loop.recurse }}{% endfor %}", "'loop.recurse'", ErrorCode::kUnsupported},
      {"{% for x in l %}{% macro m() %}{% endmacro %}{% endfor %}", "the macro 'm' inside a loop",
       ErrorCode::kUnsupported},
  });
}

TEST(JinjaRun, ErrorsHaveTheLineOfTheirPlace) {
  expect_bad({
      {"a\n\n{{ missing.x }}", "line 3: 'missing' is undefined"},
      {"{{ d.x + 'a' }}", "a value of type dict has no element 'x'"},
      {"{{ (1 if false).x }}", "the inline if of line 1 has no else"},
      {"{{ s + 1 }}", "'+' does not take str and int"},
      {"{{ -s }}", "'-' does not take str"},
      {"{{ 1 // 0 }}", "division by zero"},
      {"{{ 1 < 'a' }}", "int and str cannot be put in order"},
      {"{{ 1 in 2 }}", "'in' cannot look into a value of type int"},
      {"{{ 1 in 'a' }}", "'in' on a string takes a string"},
      {"{% for x in 5 %}{% endfor %}", "a value of type int has no items"},
      {"{% for a, b in l %}{% endfor %}", "a value of type int has no items"},
      {"{% set a, b = l %}", "2 names for 3 values"},
      {"{% set d.x = 1 %}", "'d' is no namespace"},
      {"{% set n = namespace() %}{% set n._x = 1 %}", "not safe to set"},
      {"{{ l.append(1) }}", "list.append would not be safe"},
      {"{{ s() }}", "a value of type str is no function"},
      {"{{ nothing() }}", "'nothing' is undefined"},
      {"{{ s.split('') }}", "the separator is empty"},
      {"{{ s.find(1) }}", "'sub' takes a string, not int"},
      {"{{ s.replace('a') }}", "str.replace lacks its argument 'new'"},
      {"{{ l|join(',', 'a', 'b') }}", "takes 2 arguments at most, not 3"},
      {"{{ s|trim(x=1) }}", "has no argument 'x'"},
      {"{{ s|trim('a', chars='b') }}", "was given twice 'chars'"},
      {"{{ 5|length }}", "a value of type int has no length"},
      {"{{ range(100001) }}", "range: more than 100000 items"},
      {"{{ range(1, 2, 0) }}", "range: the step is 0"},
      {"{{ undefined|tojson }}", "tojson: a value of type Undefined is not JSON"},
      {"{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "macro 'm' takes 1 arguments at most"},
      {"{% macro m(a) %}{% endmacro %}{{ m(b=2) }}", "cannot take the argument 'b'"},
      {"\n{{ raise_exception('Only ' ~ 2 ~ ' roles') }}",
       "the chat template refuses this conversation: Only 2 roles (line 2 of the template)",
       ErrorCode::kInvalidArgument},
  });
}

TEST(JinjaRun, EverythingEnds) {
  const Limits limits{.steps = 1'000'000, .bytes = 16 << 20, .output = 1 << 20};
  const std::vector<std::string> endless = {
      "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
      "{% set n = namespace(s='xxxxxxxx') %}{% for a in range(99) %}{% set n.s = n.s ~ n.s %}{% "
      "endfor %}",
      "{{ 'x' * 999999999999 }}",
      "{{ [1] * 999999999999 }}",
      "{% for a in range(100000) %}0123456789abcdef{% endfor %}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% set n = namespace(l=[]) %}{% for a in range(1000) %}{% set n.l = [n.l] %}{% endfor %}",
      "{{ 'aaaa'.ljust(99999999999) }}",
      "{{ ('a' * 9999999).replace('', 'b' * 999) }}",
      "{{ ('a,' * 999999).split(',') }}",
      "{% set s = 'a' * 99999 ~ 'b' %}{% for i in range(99999) %}{{ s in 'a' * 99999 }}{% endfor "
      "%}",
      "{% set n = namespace(d={}) %}{% for i in range(99999) %}{% set n.d = dict(n.d, k=i) %}{% "
      "endfor %}"
      "{% for i in range(99999) %}{{ range(99999)|sort|unique|list }}{% endfor %}",
  };
  for (const std::string& source : endless) {
    const auto result = run(source, limits);
    ASSERT_FALSE(result) << source;
    EXPECT_EQ(result.error().code(), ErrorCode::kInvalidFile) << source;
  }
}

// Long strings: what is done to them is counted for every byte of each of them.
TEST(JinjaRun, WorkOnLongTextsIsCounted) {
  const std::string a = "{% set a = 'x' * 10000000 %}";
  const std::string b = "{% set b = 'x' * 9999999 ~ 'y' %}";
  const auto loop = [](std::string_view body) {
    return "{% for i in range(100000) %}{% for j in range(100000) %}" + std::string(body) +
           "{% endfor %}{% endfor %}";
  };
  const std::vector<std::string> slow = {
      a + b + loop("{% if a == b %}{% endif %}"),
      a + b + loop("{% if a < b %}{% endif %}"),
      a + b + "{% set d = {a: 1} %}" + loop("{% if b in d %}{% endif %}"),
      a + b + "{% set d = {a: 1} %}" + loop("{% set v = d[b] %}"),
      a + b + "{% set d = {a: 1} %}" + loop("{% set v = d.get(b) %}"),
      a + b + "{% set d = {a: 1, 'k': 2} %}" + loop("{% set v = dict(d, k=3) %}"),
      a + b + "{{ b.startswith((a,) * 1000000) }}",
      a + "{{ a.endswith((a[1:] ~ '2',) * 1000000) }}",
      a + loop("{% if a in 'b' %}{% endif %}"),
      a + loop("{% set v = 'b'.find(a) %}"),
      a + loop("{% set v = 'b'.rfind(a) %}"),
      a + loop("{% set v = 'b'.count(a) %}"),
      a + loop("{% set v = 'b'.split(a) %}"),
      a + loop("{% set v = 'b'.rsplit(a, 1) %}"),
      a + loop("{% set v = 'b'.partition(a) %}"),
      a + loop("{% set v = 'b'.rpartition(a) %}"),
      a + loop("{% set v = 'b'.replace(a, '') %}"),
      a + loop("{% set v = 'b'|replace(a, '') %}"),
      a + loop("{% set v = 'b'|indent(a) %}"),
      a + loop("{% set v = 'b'.strip(a) %}"),
      a + loop("{% set v = ('b' * 60).strip(a ~ 'b') %}"),
      a + loop("{% set v = ('b' * 60)|trim(a ~ 'b') %}"),
      a + loop("{% set v = 'b'.removeprefix(a) %}{% set w = a.removesuffix('y') %}"),
      a + loop("{% set v = []|tojson(indent=a) %}"),
      a + loop("{% set v = []|tojson(separators=(a, a)) %}"),
      a + loop("{% set v = a|tojson(ensure_ascii=true) %}"),
      a + b + "{% set d = {a: 1, b: 2} %}" + loop("{% set v = d|tojson(sort_keys=true) %}"),
      a + loop("{% set v = [1, 2]|map(attribute=a)|list %}"),
      a + loop("{% set v = ('.' * 10000000).split('.') %}"),
      a + loop("{% set v = ('\n' * 10000000).splitlines() %}"),
      a + loop("{% set v = [a]|string %}"),
      a + loop("{% set v = ['\x01' * 1000000]|string %}"),
      a + loop("{% set v = a|upper %}"),
      a + loop("{% set v = [a, a]|sort|length %}"),
      a + loop("{% set v = a|int %}"),
      a + loop("{% set v = [''] * 1000 %}{% set w = v|join %}"),
      loop("{% set " + std::string(300'000, 'n') + " = 1 %}"),
      "{% for x in [0] * 1000000 if true %}{{ loop.length }}{{ loop.nextitem }}{{ x + x + x + x + "
      "x + x + x + x + x }}{% endfor %}",
  };
  for (const std::string& source : slow) {
    const std::string name = source.substr(0, 200);
    // Uncounted work would take hours; sanitizers and other programs cost a factor.
    const std::clock_t begin = std::clock();
    const auto result = run(source, {.steps = 5'000'000, .bytes = 64 << 20});
    EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 60.0) << name;
    ASSERT_FALSE(result) << name;
    EXPECT_THAT(result.error().message(), AnyOf(HasSubstr("the template runs for too long"),
                                                HasSubstr("the template makes too much text")))
        << name;
  }
}

// Items that were drawn ahead of their round leave one by one: each at the same cost.
TEST(JinjaRun, ALoopThatLooksAheadIsLinear) {
  const auto begin = std::chrono::steady_clock::now();
  const auto result =
      run("{% for x in [0] * 100000 if true %}{% set n = loop.length %}{% if loop.last %}{{ n }}"
          "{% endif %}{% endfor %}");
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(seconds.count(), 5.0);  // The square would take minutes.
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_EQ(*result, "100000");
}

TEST(JinjaRun, CanBeInterrupted) {
  const auto ast = parse(
      "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}"
      "{% endfor %}");
  ASSERT_TRUE(ast) << ast.error().message();
  int questions = 0;
  const Environment environment{.interrupted = [&] { return ++questions == 3; }};
  const auto result = render(*ast, environment);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code(), ErrorCode::kInterrupted);
  EXPECT_EQ(questions, 3);
}

TEST(JinjaSyntax, DeepNestingIsRefused) {
  const auto repeat = [](std::string_view part, int count) {
    std::string all;
    for (int i = 0; i < count; ++i) all += part;
    return all;
  };
  const auto around = [&](std::string_view open, std::string_view close) {
    return repeat(open, 10'000) + "1" + repeat(close, 10'000);
  };
  const std::vector<std::string> sources = {
      "{{ " + around("(", ")") + " }}",
      "{{ " + around("[", "]") + " }}",
      "{{ " + around("{1: ", "}") + " }}",
      "{{ " + around("f(", ")") + " }}",
      "{{ " + around("x[", "]") + " }}",
      "{{ " + around("not ", "") + " }}",
      "{{ " + around("-", "") + " }}",
      "{{ " + around("1 if 1 else ", "") + " }}",
      "{{ " + around("1 is eq(", ")") + " }}",
      "{{ x" + repeat(".a", 10'000) + " }}",
      "{{ x" + repeat("|list", 10'000) + " }}",
      "{{ 1" + repeat(" + 1", 10'000) + " }}",
      "{{ 1" + repeat(" if 1", 10'000) + " }}",
      "{% set " + repeat("(", 10'000) + "x" + repeat(")", 10'000) + " = 1 %}",
      repeat("{% if x %}", 10'000),
  };
  for (const std::string& source : sources) {
    const auto result = run(source);
    ASSERT_FALSE(result);
    EXPECT_THAT(result.error().message(), HasSubstr("too deeply")) << source.substr(0, 20);
  }
  EXPECT_EQ(text("{{ 1" + repeat(" ~ 1", 1000) + " }}"), repeat("1", 1001));
  EXPECT_EQ(text("{{ 0" + repeat(" or 0", 1000) + " or 7 }}"), "7");
}

TEST(JinjaRun, ALoopSeesWhatItsBodySets) {
  EXPECT_EQ(text("{% set n = namespace(stop=false) %}{% for x in l if not n.stop %}{{ x }}"
                 "{% if x == 2 %}{% set n.stop = true %}{% endif %}{% endfor %}"),
            "12");
  EXPECT_EQ(
      text("{% for x in l if x != 2 %}{{ x }}{{ loop.last }}{{ loop.nextitem }};{% endfor %}"),
      "1False3;3True;");
  EXPECT_EQ(text("{% for x in l %}{{ loop|length }}{{ loop.revindex }}{% endfor %}"), "333231");
  EXPECT_EQ(text("{% for x in l %}{{ loop.changed(x > 1) }} {% endfor %}"), "True True False ");
}

TEST(JinjaRun, LongNeedlesAreFoundToo) {
  EXPECT_EQ(text("{{ ('abcabcabcabcabcabcd' in 'xabcabcabcabcabcabcabcd') }}"), "True");
  EXPECT_EQ(text("{{ 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab'.find('aaaaaaaaaaaaaaaaaaaaab') }}"),
            "15");
  EXPECT_EQ(text("{{ 'abcabc'.rfind('abcabcabcabcabcabcabc') }}"), "-1");
}

}  // namespace
}  // namespace volta::jinja
