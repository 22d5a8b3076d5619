# Writes page_template.cpp: the page of `foretoken report` with its styles, scripts and d3 in one text. In page.html a
# line @FILE@ stands for a file beside it, and @D3@ for the library.

cmake_minimum_required(VERSION 3.25)  # else a mark is read as a variable

file(READ "${PARTS}/page.html" page)
file(READ "${D3}" library)
if(NOT library MATCHES "version: ?\"3\\.")
  message(FATAL_ERROR "${D3} is not d3 3: install libjs-d3, or name its d3.min.js in FORETOKEN_D3.")
endif()
string(REPLACE "@D3@" "${library}" page "${page}")
file(GLOB parts RELATIVE "${PARTS}" "${PARTS}/*")
foreach(part IN LISTS parts)
  file(READ "${PARTS}/${part}" text)
  string(REPLACE "@${part}@" "${text}" page "${page}")
endforeach()

# A string literal of this length is more than compilers must take, so it is an array of bytes.
file(WRITE "${OUT}.html" "${page}")
file(READ "${OUT}.html" bytes HEX)
file(REMOVE "${OUT}.html")
string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
file(WRITE "${OUT}" "// Made by the build from experiments/report/page/.
#include \"experiments/report/page.h\"

namespace foretoken {
namespace {

constexpr unsigned char kTemplate[] = {${bytes}};

}  // namespace

std::string_view page_template() { return {reinterpret_cast<const char*>(kTemplate), sizeof kTemplate}; }

}  // namespace foretoken
")
