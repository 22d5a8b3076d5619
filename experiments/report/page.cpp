#include "experiments/report/page.h"

#include "experiments/report/tables.h"

namespace foretoken {
namespace {

using nlohmann::json;

constexpr std::string_view kTitleMark = "@TITLE@", kPayloadMark = "@PAYLOAD@";

// The text before and after the one place of a mark.
struct Halves {
  std::string_view before, after;
};
Halves split(std::string_view text, std::string_view mark) {
  const std::size_t at = text.find(mark);
  if (at == std::string_view::npos)
    throw Error("the page of this build lacks " + std::string(mark) + "; build it again");
  return {text.substr(0, at), text.substr(at + mark.size())};
}

}  // namespace

std::string script_json(const json& value) {
  std::string found;
  for (const char c : value.dump(-1, ' ', true, json::error_handler_t::replace))
    found += c == '<' ? std::string("\\u003c") : std::string(1, c);
  return found;
}

std::string html_text(const std::string& text) {
  std::string found;
  for (const char c : text) switch (c) {
      case '&':
        found += "&amp;";
        break;
      case '<':
        found += "&lt;";
        break;
      case '>':
        found += "&gt;";
        break;
      case '"':
        found += "&quot;";
        break;
      default:
        found += c;
    }
  return found;
}

std::string page(const std::vector<Result>& lines, const PageFiles& files) {
  return of_lines([&] {
    const json payload = page_payload(View(lines), files);
    // Both marks are found before anything is put in their places, so that results cannot hold one.
    const auto [head, rest] = split(page_template(), kTitleMark);
    const auto [body, end] = split(rest, kPayloadMark);
    std::string found(head);
    found += html_text(payload.at("title").get<std::string>());
    found += body;
    found += script_json(payload);
    return found += end;
  });
}

bool is_page(std::string_view bytes) {
  const std::string_view opening = page_template().substr(0, page_template().find(kTitleMark));
  return bytes.starts_with(opening.substr(0, opening.find("<style>")));
}

}  // namespace foretoken
