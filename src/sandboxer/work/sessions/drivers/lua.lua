-- Cells of Lua in the global environment; locals end with their cell.
-- Runs inside a sandbox, in the interpreter that keeps the state.
local codes = assert(io.open("/dev/fd/" .. os.getenv("SANDBOXER_CODE"), "rb"))
local control = assert(io.open("/dev/fd/" .. os.getenv("SANDBOXER_CONTROL"), "wb"))
local flag = os.getenv("SANDBOXER_FLAG")
local load, pcall, open, sethook, traceback = loadstring or load, xpcall, io.open, debug.sethook, debug.traceback
control:setvbuf("no")
io.stdout:setvbuf("line")

local function answer(word, text)
  text = tostring(text)
  control:write(word, " ", #text, "\n", text)
end

-- Lua knows no signals: it looks every few million steps whether someone wants it to stop.
local function look()
  local found = open(flag)
  if found then
    found:close()
    sethook()
    error("interrupted", 0)
  end
end

local function complain(fault)
  local text = type(fault) == "string" and fault or tostring(fault)
  return { text, traceback(text, 2) }
end

local function run(n, code)
  local name = "=<cell " .. n .. ">"
  local chunk, fault = load("return " .. code, name)
  if not chunk then chunk, fault = load(code, name) end
  if not chunk then
    answer("ename", "SyntaxError")
    answer("evalue", fault)
    answer("trace", fault)
    return 1
  end
  sethook(look, "", 1000000)
  local got = table.pack and table.pack(pcall(chunk, complain)) or { n = 2, pcall(chunk, complain) }
  sethook()
  if not got[1] then
    answer("ename", got[2][1] == "interrupted" and "Interrupted" or "Error")
    answer("evalue", got[2][1])
    answer("trace", got[2][2])
    return 1
  end
  if got.n > 1 and got[2] ~= nil then
    local shown = {}
    for i = 2, got.n do shown[#shown + 1] = tostring(got[i]) end
    answer("value", table.concat(shown, "\t"))
  end
  return 0
end

control:write("end 0 0\n")
while true do
  local head = codes:read("*l")
  if not head then break end
  local n, size = head:match("^(%d+) (%d+)$")
  local code = tonumber(size) > 0 and codes:read(tonumber(size)) or ""
  local status = run(n, code)
  io.stdout:flush()
  io.stderr:flush()
  control:write("end ", status, " ", n, "\n")
end
