// The fixtures of the tests of volta chat: a folder with a template, and a tiny model in it.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "apps/command.h"
#include "support/shared_data.h"
#include "support/temp_dir.h"

namespace volta::test {

using Json = nlohmann::json;

inline constexpr std::string_view kTemplate =
    "{% for m in messages %}{% if m.role not in ['system', 'user', 'assistant'] %}"
    "{{ raise_exception('Only known roles') }}{% endif %}"
    "{{ bos_token if loop.first }}[{{ m.role }}]{{ m.content }}"
    "{{ eos_token if m.role == 'assistant' }}{% endfor %}"
    "{{ '[assistant]' if add_generation_prompt }}";

// Needs no model: prompts of a folder with a template only.
class RenderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(dir_.file("model"));
    write_config(std::string(kTemplate));
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(dir_.file(name), std::ios::binary) << text;
  }
  void write_config(const std::string& chat_template) const {
    const Json config = {
        {"bos_token", bos_}, {"eos_token", eos_}, {"chat_template", chat_template}};
    write("model/tokenizer_config.json", config.dump());
  }
  CommandResult chat(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"chat", "model"});
    return run_volta(arguments, dir_.path());
  }

  TempDir dir_;
  std::string bos_ = "<s>", eos_ = "</s>";
};

// Talks with the model.
class ChatTest : public RenderTest {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(dir_.file("model"));
    for (const std::string name : {"config.json", "model.safetensors", "tokenizer.json"}) {
      std::filesystem::copy_file(tiny_llama_path() + "/" + name, dir_.file("model/" + name));
    }
    // In both tiny models, special token 1 begins a turn and special token 2 ends it.
    const Json tokenizer = Json::parse(std::ifstream(dir_.file("model/tokenizer.json")));
    bos_ = tokenizer["added_tokens"][1]["content"];
    eos_ = tokenizer["added_tokens"][2]["content"];
    write_config(std::string(kTemplate));
  }
  // Lines in, one JSON object a turn out; greedy.
  CommandResult talk(const std::string& lines, std::vector<std::string> more = {}) const {
    write("lines", lines);
    std::vector<std::string> arguments = {"chat", "model", "--temperature", "0",
                                          "-n",   "8",     "--output",      "json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Command(arguments, dir_.path(), {}, "lines").wait();
  }
  static std::vector<Json> turns(const CommandResult& result) {
    std::vector<Json> list;
    std::istringstream lines(result.out);
    for (std::string line; std::getline(lines, line);) list.push_back(Json::parse(line));
    return list;
  }
};

}  // namespace volta::test
